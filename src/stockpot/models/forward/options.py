"""What may be chosen about forward passes: precision and compilation.

`auto` is the fastest precision that keeps the rule in docs/performance.md: at most one prediction
in 200 changes, and right answers are gained as often as lost. On a CPU that is full precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import torch

from stockpot.errors import BadParameterError
from stockpot.types import Precision, PrecisionChoice

_AMPERE = (8, 0)
"""The first GPUs with TensorFloat-32 and bfloat16."""


@dataclass(frozen=True)
class Forward:
    """How a network is run: what may change a prediction, by rounding alone."""

    precision: Precision = "fp32"
    compile: bool = False

    def __str__(self) -> str:
        return self.precision + (", compiled" if self.compile else "")


def chosen_forward(precision: PrecisionChoice, compiled: bool, device: torch.device) -> Forward:
    """The options as they hold on a device.

    Raises:
        BadParameterError: no such precision, or none that the device has.
    """
    if precision not in get_args(PrecisionChoice):
        known = ", ".join(get_args(PrecisionChoice))
        raise BadParameterError(f"precision: expected one of {known}, got {precision!r}.")
    if precision == "tf32" and device.type != "cuda":
        raise BadParameterError(
            f"precision: tf32 is arithmetic of NVIDIA GPUs, got the device {device.type}.",
            hint="Use fp32, or --device cuda.",
        )
    return Forward(default_precision(device) if precision == "auto" else precision, compiled)


def default_precision(device: torch.device) -> Precision:
    """What `auto` means on a device."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) >= _AMPERE:
        return "tf32"
    return "fp32"
