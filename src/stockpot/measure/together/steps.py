"""Measures that go in steps, so that several models can take each step together.

    @measures.register("clean")
    @in_steps
    def clean(model, data, context, *, top: int = 5) -> Steps[Measurement]:
        for logits, batch in forward_batches(model, data, context, "clean"):
            ...
            yield None
        return Measurement(...)

Called, such a measure goes through all its steps and gives back what it found. Whoever has several
models (`group`) takes one step of each in turn: what the first of them asks `Pictures` for, the
others find there. A measure that is a plain function is one step, and shares nothing.

A step that gives `NUMBERS` is the last that asks a model: what follows is statistics, which those
who have several models do for all of them beside each other.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import wraps
from typing import Any, Final, Literal, ParamSpec, TypeVar

from torch import nn

from stockpot.models.classifier import evaluating

T = TypeVar("T")
P = ParamSpec("P")
NUMBERS: Final = "numbers"
Step = Literal["numbers"] | None
Steps = Generator[Step, None, T]


def in_steps(measure: Callable[P, Steps[T]]) -> Callable[P, T]:
    """A measure that is taken in steps, as one that is called; its first argument is the model."""

    @wraps(measure)
    def whole(*args: P.args, **params: P.kwargs) -> T:
        model = args[0]
        if not isinstance(model, nn.Module):
            raise TypeError(f"expected a model first, got {type(model).__name__}")
        # Around all steps, not inside one: two that are interleaved would end each other's mode.
        with evaluating(model):
            return to_the_end(measure(*args, **params))

    setattr(whole, _STEPS, measure)
    return whole


_STEPS = "_steps"


def steps_of(measure: Callable[..., T]) -> Callable[..., Steps[T]] | None:
    """The measure in steps; none where it is a plain function.

    The steps are taken inside `evaluating(model)`.
    """
    found: Any = getattr(measure, _STEPS, None)
    return found  # type: ignore[no-any-return]


def to_the_end(steps: Steps[T]) -> T:
    """All steps, one after the other."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
