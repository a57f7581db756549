"""Layers of several models one after the other: a deeper or a shallower model, read as one.

What lies before the layers (embeddings, a stem) is the first model's, what lies behind them the
last one's. Of a dual encoder, the layers of the vision tower are stacked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Annotated

from stockpot.checkpoints.source import Source
from stockpot.checkpoints.stacked import StackedSource
from stockpot.errors import BadParameterError
from stockpot.fuse.parameters import at_the_start
from stockpot.types import Check

LAYER = re.compile(r"^(.+?)\.(\d+)\.")
_SPAN = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


def _check_span(text: object) -> str:
    found = _SPAN.fullmatch(str(text))
    if found is None or int(found[2] or found[1]) < int(found[1]):
        raise BadParameterError(
            f"layers: expected the first and the last, such as 0-5, or one number, got {text!r}."
        )
    return str(text)


Span = Annotated[str, Check(_check_span)]
"""Layers of a model from the first to the last, counted from 0: `0-5`, or `3` alone."""


def the_stack(names: Iterable[str], whose: str) -> str:
    """The name in front of the numbers of a model's layers: `encoder.layers`."""
    stacks = sorted({match[1] for name in names if (match := LAYER.match(name))})
    seeing = [stack for stack in stacks if "vision" in stack or "visual" in stack]
    found = seeing if len(stacks) > 1 else stacks
    if len(found) != 1:
        raise BadParameterError(
            f"{whose}: expected one stack of layers, got {', '.join(stacks) or 'none'}."
        )
    return found[0]


def stack_layers(sources: Sequence[Source], spans: Sequence[str] | None) -> Source:
    """One model of the layers of several.

    Args:
        sources: the models, in the order of their layers; one may come again.
        spans: which layers of each, or of the one that there is; all of them by default.
    """
    if spans is None and len(sources) == 1:
        return sources[0]
    if spans is not None and len(sources) == 1:
        sources = [sources[0]] * len(spans)
    if spans is not None and len(spans) != len(sources):
        raise BadParameterError(
            f"layers: expected a span for each of {len(sources)} members, got {len(spans)}."
        )
    first, last = sources[0], sources[-1]
    stack = the_stack(first.tensors(), first.label)
    places: dict[str, tuple[Source, str]] = {
        name: (first, name) for name in _outside(first, stack) if at_the_start(name)
    }
    shapes: dict[str, tuple[int, ...]] = {}
    number, told = 0, []
    for index, source in enumerate(sources):
        layers = _layers(source, stack)
        span = spans[index] if spans is not None else f"0-{max(layers, default=0)}"
        begin, _, end = span.partition("-")
        for layer in range(int(begin), int(end or begin) + 1):
            if layer not in layers:
                raise BadParameterError(
                    f"layers: {source.label} has no layer {layer} in {stack}: expected numbers "
                    f"from 0 to {max(layers, default=0)}."
                )
            for part in layers[layer]:
                own = f"{stack}.{layer}.{part}"
                shape = source.tensors()[own].shape
                if shapes.setdefault(part, shape) != shape:
                    raise BadParameterError(
                        f"layers: {own} of {source.label} has the shape {tuple(shape)}, expected "
                        f"that of the layers before it, {tuple(shapes[part])}."
                    )
                places[f"{stack}.{number}.{part}"] = (source, own)
            number += 1
        told.append(f"{source.label}[{span}]")
    places |= {name: (last, name) for name in _outside(last, stack) if not at_the_start(name)}
    return StackedSource(places, label="+".join(told), layers=number)


def _outside(source: Source, stack: str) -> list[str]:
    return [name for name in source.tensors() if not name.startswith(f"{stack}.")]


def _layers(source: Source, stack: str) -> dict[int, list[str]]:
    """Number of each layer -> the names of its tensors behind the number."""
    found: dict[int, list[str]] = {}
    for name in source.tensors():
        match = LAYER.match(name)
        if match and match[1] == stack:
            found.setdefault(int(match[2]), []).append(name[match.end() :])
    if not found:
        raise BadParameterError(f"layers: {source.label} has no layers named {stack}.")
    return found
