"""Gradients through what has none: hard steps pass them on as if they were the identity.

Rounding, casts to whole numbers, cuts, signs and detached tensors leave the answers of a model as
they are and take its gradient away. Here the model runs as it is, every operation giving exactly
what it gives, and backwards these operations stand aside (arXiv:1802.00420). Logits that are so
large that the cross-entropy has no slope are brought to a common size first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from stockpot.dynamic.ways.way import Look, Model, Spot, spread
from stockpot.score.predictions import predictions

_STEPS = {"round", "floor", "ceil", "trunc", "fix", "sign", "sgn", "heaviside"}
_CUTS = {"clamp", "clip", "clamp_min", "clamp_max", "hardtanh", "relu6", "hardsigmoid"}
_CASTS = {"to", "type", "byte", "char", "short", "int", "long", "bool"}
_SATURATE = {"tanh", "sigmoid"}
_LEAK = 1e-2
"""The slope that is left to a function which has saturated."""
_SURE = 1e-6
"""The rest of probability below which a cross-entropy has hardly a slope in single precision."""
_TINY = torch.finfo(torch.float32).tiny
_SPREAD = 3.0
"""The standard deviation that logits are brought to there."""


class StraightThrough(TorchFunctionMode):
    """While it is on, hard operations have a gradient; what they give is not changed."""

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
        if name.endswith("_") and name[:-1] in _STEPS | _CUTS:
            exact = getattr(torch, name[:-1])(*args, **options)
            return given.copy_(_through(exact, given.clone()))
        exact = func(*args, **options)
        if not isinstance(exact, Tensor) or exact.shape != given.shape:
            return exact
        if name in _STEPS | _CUTS or (name in _CASTS and not exact.is_floating_point()):
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


def _led(model: Model, pixels: Tensor) -> Tensor:
    """The model's answer with a gradient past hard steps, or without where it takes other roads."""
    try:
        with StraightThrough():
            return model(pixels).float()
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError):  # such as numbers that leave torch
        return model(pixels).float()


class StraightThroughGradient:
    """Follows the gradient past hard steps, saturated losses, probabilities and noise."""

    name = "straight_through"
    probes = 0

    def __init__(self, draws: int = 1, probabilities: bool = False) -> None:
        self.passes = draws
        self.probabilities = probabilities

    def look(self, model: Model, pixels: Tensor, targets: Tensor, labels: Tensor) -> Look:
        """The cross-entropy is climbed, of calmer logits where it has no slope."""
        logits = torch.stack([_led(model, pixels) for _ in range(self.passes)]).mean(dim=0)
        losses = F.cross_entropy(logits, targets, reduction="none")
        wrong = predictions(logits) != targets
        told = logits.clamp_min(_TINY).log() if self.probabilities else logits
        climbed = F.cross_entropy(told, targets, reduction="none")
        # Of a model that is more than sure the same answers are taken at a temperature of which a
        # slope is left.
        calm = _SPREAD * logits / spread(logits)
        slope = F.cross_entropy(calm, targets, reduction="none")
        return Look(losses, wrong, torch.where(climbed < _SURE, slope, climbed))

    def blind(self, spot: Spot) -> Tensor | None:
        """It follows a gradient."""
        return None
