"""Back to 8 bits, the way the benchmark does it."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor


def truncate(values: Tensor) -> Tensor:
    """Clip to 0..255 and cut the fraction off; the values are overwritten.

    The original casts with `np.uint8(...)`, which truncates: every corruption darkens by half a
    level on average compared to rounding, and published accuracies include that.
    """
    values = values.clamp_(0, 255)
    # By way of int32, because the direct cast of floats to bytes is not vectorised on CPUs.
    return (values.to(torch.int32) if values.is_cpu else values).to(torch.uint8)


@lru_cache(maxsize=64)
def constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    """One float per channel, 3 x 1 x 1, sent to a device once: sending waits for the device."""
    return torch.tensor(values, device=device).view(-1, 1, 1)
