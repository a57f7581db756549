"""Gradients for a model that has cut them: operations without a slope pass it straight through.

Rounding, signs and detaching have a slope of zero or none, and a squashing function driven to its
ends has one of zero in float32. All of them rise with what goes in, so a search that takes their
slope for one walks in the right direction (Athalye et al., arXiv:1802.00420). Outputs stay as they
are to the last bit; only the way back changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from stockpot.attack.folding import Model

_STEPS = frozenset(
    {
        torch.round, Tensor.round, Tensor.round_, torch.floor, Tensor.floor, torch.ceil,
        Tensor.ceil, torch.trunc, Tensor.trunc, torch.sign, Tensor.sign, torch.detach,
        Tensor.detach, torch.tanh, Tensor.tanh, torch.sigmoid, Tensor.sigmoid, F.tanh, F.sigmoid,
        F.hardtanh, torch.softmax, Tensor.softmax, F.softmax,
    }
)  # fmt: skip


class _Straight(TorchFunctionMode):
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = args[0] if args else None
        result = func(*args, **(kwargs or {}))
        if func not in _STEPS or not isinstance(given, Tensor) or not given.requires_grad:
            return result
        with torch._C.DisableTorchFunction():
            return _Identity.apply(given, result.detach())  # type: ignore[no-untyped-call]


class _Identity(torch.autograd.Function):
    """The second value, with the slope of the first."""

    @staticmethod
    def forward(context: Any, given: Tensor, result: Tensor) -> Tensor:
        return result.clone()

    @staticmethod
    def backward(context: Any, *slopes: Any) -> tuple[Tensor, None]:
        return cast(Tensor, slopes[0]), None


def straight_through(model: Model) -> Model:
    """The same model, whose rounding, squashing and detaching let gradients pass."""

    def run(pixels: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return model(pixels)
        with _Straight():
            return model(pixels)

    return run
