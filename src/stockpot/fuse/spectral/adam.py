"""Adam for one matrix whose gradient has a closed form (Kingma & Ba, arXiv:1412.6980)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor


def descend(
    start: Tensor, gradient: Callable[[Tensor], Tensor], *, lr: float, steps: int
) -> Tensor:
    """The matrix after some steps of Adam with its usual constants."""
    point = start.clone()
    mean, square = torch.zeros_like(point), torch.zeros_like(point)
    for step in range(1, steps + 1):
        slope = gradient(point)
        mean.lerp_(slope, 0.1)
        square.mul_(0.999).addcmul_(slope, slope, value=0.001)
        size = lr / (1 - 0.9**step)
        scale = (square.sqrt() / math.sqrt(1 - 0.999**step)).add_(1e-8)
        point.addcdiv_(mean, scale, value=-size)
    return point
