"""Consensus task arithmetic: keep what several tasks use (Wang et al., arXiv:2405.07813)."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, TensorFuser
from stockpot.fuse.sparse.combine import add_up
from stockpot.types import Count


@fusers.register("consensus_ta", paper="arXiv:2405.07813", needs_base=True, symmetric=True)
def consensus_ta(*, scale: float = 0.3, strictness: float = 0.6, agree: Count = 2) -> TensorFuser:
    """Add up the changes of the weights that at least `agree` members use.

    A member uses a weight when |tau_t| > strictness |tau - tau_t|, tau the sum of all changes.

    Args:
        scale: multiplies the merged change before it is added to the base.
        strictness: lambda of the paper; larger means that fewer weights count as used.
        agree: how many members must use a weight; the paper takes 2.
    """

    def merge(slab: Slab) -> Tensor:
        total = add_up(slab.deltas())
        users = torch.zeros_like(total)
        for delta in slab.deltas():
            users += uses(delta, total, strictness)
        return (total * (users >= agree)).mul_(scale).add_(slab.base)

    return TensorFuser(merge, elementwise=True)


def uses(delta: Tensor, total: Tensor, strictness: float) -> Tensor:
    """Where a task's own change outweighs what the others do to it."""
    return delta.abs() > strictness * (total - delta).abs()
