"""Arcee Fusion: take over the changes that matter most to the rows they stand in (mergekit)."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, TensorFuser
from stockpot.fuse.sparse.select import kth_smallest

_TINY = 1e-8


@fusers.register(
    "arcee_fusion", paper="https://github.com/arcee-ai/mergekit", needs_base=True, members=1
)
def arcee_fusion(*, spread: float = 1.5) -> TensorFuser:
    """Take over the changes of one member that stand out by size and by what their row means.

    A change counts by its magnitude times the Kullback-Leibler divergence between the softmax of
    its row in the member and in the base. Per tensor, those are taken over whole that reach the
    median plus `spread` times the distance between the quartiles; the rest stays at the base.

    Args:
        spread: how far above the median, in distances between the quartiles; mergekit's is 1.5.
    """

    def merge(slab: Slab) -> Tensor:
        member, base = slab.member(0), slab.base
        counts = (member - base).abs() * _divergence(member, base)
        low, middle, high = (_quantile(counts, share) for share in (0.25, 0.5, 0.75))
        return torch.where(counts >= middle + spread * (high - low), member, base)

    return TensorFuser(merge)


def _divergence(member: Tensor, base: Tensor) -> Tensor:
    p, q = member.softmax(dim=-1) + _TINY, base.softmax(dim=-1) + _TINY
    return (p * (p / q).log()).sum(dim=-1, keepdim=True)


def _quantile(values: Tensor, share: float) -> Tensor:
    """The value of the rank int(share (n - 1)), nothing interpolated."""
    return kth_smallest(values.float(), int(share * (values.numel() - 1)) + 1)
