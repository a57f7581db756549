"""Gradients for a model that has cut them: operations without a slope pass it straight through.

Rounding, casts, cuts, signs and detaching have a slope of zero or none, and a squashing function
driven to its ends has one of zero in float32. All of them rise with what goes in, so a search that
gives them a slope walks in the right direction (Athalye et al., arXiv:1802.00420). Outputs stay as
they are to the last bit; only the way back changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from stockpot.models.forward.folding import Model

_STEPS = {"round", "floor", "ceil", "trunc", "fix", "sign", "sgn", "heaviside"}
_CUTS = {"clamp", "clip", "clamp_min", "clamp_max", "hardtanh", "relu6", "hardsigmoid"}
_CASTS = {"to", "type", "byte", "char", "short", "int", "long", "bool"}
_SATURATE = {"tanh", "sigmoid"}
_LEAK = 1e-2
"""The slope that is left to a function which has saturated."""
_SURE = 1e-6
"""What a softmax that has decided leaves to all other classes."""


class StraightThrough(TorchFunctionMode):
    """While it is on, hard operations have a gradient; what they give is not changed.

    Of a cast to whole numbers these come as floats, which alone can have one.
    """

    def __init__(self, casts: bool = True) -> None:
        """Begin; without casts whole numbers stay what they are, and have no gradient."""
        super().__init__()
        self.casts = casts

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        given = args[0] if args and isinstance(args[0], Tensor) else None
        if func is torch._C._set_grad_enabled:
            return None if args[0] is False else func(*args, **options)
        if given is None or not given.requires_grad:
            return func(*args, **options)
        if name in ("detach", "detach_") or func == Tensor.data.__get__:  # type: ignore[attr-defined]
            return given
        if name.endswith("_") and name[:-1] in _STEPS | _CUTS and hasattr(torch, name[:-1]):
            exact = getattr(torch, name[:-1])(*args, **options)
            return given.copy_(_through(exact, given.clone()))
        exact = func(*args, **options)
        if not isinstance(exact, Tensor) or exact.shape != given.shape:
            return exact
        cast = self.casts and name in _CASTS and not exact.is_floating_point()
        if name in _STEPS | _CUTS or cast:
            return _through(exact, given)
        if name in _SATURATE:
            return exact + _LEAK * (given - given.detach())
        if name == "softmax":
            # Only where it has decided: elsewhere, as in attention, it has a slope of its own.
            decided = exact.detach().amax(dim=-1, keepdim=True) > 1 - _SURE
            return exact + _LEAK * decided * (given - given.detach())
        return exact


def _through(exact: Tensor, given: Tensor) -> Tensor:
    """The exact values, with the gradient of the identity."""
    return exact.detach().to(given.dtype) + (given - given.detach())


def straight_through(model: Model) -> Model:
    """The same model, whose rounding, squashing and detaching let gradients pass.

    A model that looks things up by whole numbers, or counts their bits, takes no floats for them:
    its casts give no gradient then.
    """
    casts = True

    def run(pixels: Tensor) -> Tensor:
        nonlocal casts
        if not torch.is_grad_enabled():
            return model(pixels)
        if casts:
            try:
                with StraightThrough():
                    return model(pixels)
            except (RuntimeError, IndexError, TypeError):
                casts = False
        with StraightThrough(casts):
            return model(pixels)

    return run
