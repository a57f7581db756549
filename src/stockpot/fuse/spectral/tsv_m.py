"""TSV-Merge: concatenate and decorrelate task singular vectors (Gargiulo, arXiv:2412.00081)."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, TensorFuser
from stockpot.fuse.room import of_matrices
from stockpot.fuse.spectral.decompose import (
    RANK_TOLERANCE,
    check_tolerance,
    leading_triples,
    orthogonal_factor,
    rounding_floor,
)
from stockpot.types import NonNegative


@fusers.register("tsv_m", paper="arXiv:2412.00081", needs_base=True, heavy=True, symmetric=True)
def tsv_m(
    *,
    scale: float = 1.0,
    weights: list[float] | None = None,
    rank_tolerance: NonNegative = RANK_TOLERANCE,
) -> TensorFuser:
    """Give each member an equal share of the rank of every matrix, made orthogonal to the others.

    Of each member's change to a matrix the first int(r / T) singular triples are kept (at least
    one, fewer where it has no more, and all of several equal ones at the cut); the left and the
    right vectors of all members are side by side replaced by the nearest orthonormal ones. Tensors
    that are not matrices get the mean change.

    Args:
        scale: multiplies the merged change before it is added to the base.
        weights: one number per member, multiplied into its change; all 1 by default.
        rank_tolerance: singular values up to this share of a change's Frobenius norm count as
            rounding and are left out; 0 keeps all, as FusionBench does.
    """
    check_tolerance(rank_tolerance)

    def merge(slab: Slab) -> Tensor:
        if slab.base.ndim != 2:
            return slab.base + running_mean(slab, weights) * scale
        return slab.base + _matrix(slab, weights, rank_tolerance) * scale

    return TensorFuser(merge, room=of_matrices(15, member=0.4, gram=16))


def _matrix(slab: Slab, weights: list[float] | None, tolerance: float) -> Tensor:
    # With more members than the rank of a small matrix (a head of two classes), one each.
    share = max(1, int(min(slab.base.shape) * (1 / slab.count)))
    parts = []
    for index in range(slab.count):
        delta = slab.delta(index)
        if weights is not None:
            delta *= weights[index]
        parts.append(leading_triples(delta, rounding_floor(delta, tolerance), share))
    left = orthogonal_factor(torch.cat([part.left for part in parts], dim=1), tolerance)
    right = orthogonal_factor(torch.cat([part.right for part in parts]), tolerance)
    values = torch.cat([part.values for part in parts])
    return ((left * values) @ right).to(slab.base.dtype)


def running_mean(slab: Slab, weights: list[float] | None = None) -> Tensor:
    """The mean change, updated member by member."""
    merged: Tensor | None = None
    for index, delta in enumerate(slab.deltas()):
        if weights is not None:
            delta *= weights[index]
        merged = delta if merged is None else merged + (delta - merged) / (index + 1)
    return torch.zeros_like(slab.base) if merged is None else merged
