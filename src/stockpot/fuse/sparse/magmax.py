"""MagMax: of every weight take the largest change (Marczak et al., arXiv:2407.06322)."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, TensorFuser


@fusers.register("magmax", paper="arXiv:2407.06322", needs_base=True)
def magmax(*, scale: float = 0.5) -> TensorFuser:
    """Add, weight by weight, the change of largest magnitude; the later member wins ties.

    Args:
        scale: multiplies the merged change before it is added to the base.
    """

    def merge(slab: Slab) -> Tensor:
        deltas = slab.deltas()
        largest = next(deltas)
        for delta in deltas:
            largest = torch.where(delta.abs() >= largest.abs(), delta, largest)
        return largest.mul_(scale).add_(slab.base)

    return TensorFuser(merge, elementwise=True)
