"""TSV-Merge: concatenate and decorrelate task singular vectors (Gargiulo, arXiv:2412.00081)."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, TensorFuser
from stockpot.fuse.spectral.decompose import leading_triples, orthogonal_factor


@fusers.register("tsv_m", paper="arXiv:2412.00081", needs_base=True, symmetric=True)
def tsv_m(*, scale: float = 1.0, weights: list[float] | None = None) -> TensorFuser:
    """Give each member an equal share of the rank of every matrix, made orthogonal to the others.

    Of each member's change to a matrix the first int(r / T) singular triples are kept; the left and
    the right vectors of all members are side by side replaced by the nearest orthonormal ones.
    Tensors that are not matrices get the mean change.

    Args:
        scale: multiplies the merged change before it is added to the base.
        weights: one number per member, multiplied into its change; all 1 by default.
    """

    def merge(slab: Slab) -> Tensor:
        merged = _matrix(slab, weights) if slab.base.ndim == 2 else running_mean(slab, weights)
        return slab.base + merged * scale

    return TensorFuser(merge)


def _matrix(slab: Slab, weights: list[float] | None) -> Tensor:
    rows, columns = slab.base.shape
    rank = min(rows, columns)
    share = int(rank * (1 / slab.count))
    left = slab.base.new_zeros(rows, rank)
    values = slab.base.new_zeros(rank)
    right = slab.base.new_zeros(rank, columns)
    for index in range(slab.count):
        delta = slab.delta(index)
        if weights is not None:
            delta *= weights[index]
        place = slice(index * share, (index + 1) * share)
        left[:, place], values[place], right[place] = leading_triples(delta, share)
    used = slab.count * share
    if used < rank and min(rows, columns) > 256:
        # Empty columns only make the factor singular; they carry no singular value.
        left, values, right = left[:, :used], values[:used], right[:used]
    return (orthogonal_factor(left) * values) @ orthogonal_factor(right)


def running_mean(slab: Slab, weights: list[float] | None = None) -> Tensor:
    """The mean change, updated member by member."""
    merged: Tensor | None = None
    for index, delta in enumerate(slab.deltas()):
        if weights is not None:
            delta *= weights[index]
        merged = delta if merged is None else merged + (delta - merged) / (index + 1)
    return torch.zeros_like(slab.base) if merged is None else merged
