"""How a device multiplies: TensorFloat-32 for a while, and bfloat16 where it has units for it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def products(tf32: bool) -> Iterator[None]:
    """Convolutions and matrix products in TF32, or both in full precision; as before afterwards.

    By default torch convolves in TF32 and multiplies matrices in full precision.
    """
    if not torch.cuda.is_available():
        yield
        return
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    _allow(tf32, tf32)
    try:
        yield
    finally:
        _allow(*before)


def warn_if_emulated(precision: str, device: torch.device) -> None:
    """Tell that bfloat16 was asked of a processor that has no units for it."""
    if precision == "bf16" and emulates_bf16(device):
        warnings.warn(
            "bf16: this processor has no units for bfloat16 and emulates it, several times slower "
            "than fp32 would be; choose precision fp32 here.",
            UserWarning,
            stacklevel=3,
        )


def emulates_bf16(device: torch.device) -> bool:
    """Whether a device is known to have no units for bfloat16."""
    known = getattr(torch.cpu, "get_capabilities", None)
    if device.type != "cpu" or known is None:
        return False
    return not any(has for name, has in known().items() if "bf16" in name)


def _allow(convolutions: bool, matrices: bool) -> None:
    with warnings.catch_warnings():
        # Newer names of these switches exist; torch.compile still reads these and refuses a mix.
        warnings.simplefilter("ignore")
        torch.backends.cudnn.allow_tf32 = convolutions
        torch.backends.cuda.matmul.allow_tf32 = matrices
