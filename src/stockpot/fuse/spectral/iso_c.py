"""Iso-C: give the summed change a flat spectrum (Marczak et al., arXiv:2502.04959)."""

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
    rounding_floor,
)
from stockpot.types import NonNegative


@fusers.register("iso_c", paper="arXiv:2502.04959", needs_base=True, heavy=True, symmetric=True)
def iso_c(*, scale: float = 1.0, rank_tolerance: NonNegative = RANK_TOLERANCE) -> TensorFuser:
    """Replace the singular values of every matrix of the summed change by their mean.

    Directions in which there is no change stay without one, and do not count in the mean.

    Tensors that are not matrices get the mean change.

    Args:
        scale: multiplies the merged change before it is added to the base.
        rank_tolerance: singular values up to this share of a change's Frobenius norm count as
            rounding and are left out; 0 keeps all, as FusionBench does.
    """
    check_tolerance(rank_tolerance)

    def merge(slab: Slab) -> Tensor:
        total = total_change(slab)
        merged = _flat(total, rank_tolerance) if slab.base.ndim == 2 else total / slab.count
        return slab.base + merged * scale

    return TensorFuser(merge, one_by_one=True, room=of_matrices(10, gram=10))


def _flat(matrix: Tensor, tolerance: float) -> Tensor:
    left, values, right = leading_triples(matrix, rounding_floor(matrix, tolerance))
    if not len(values):
        return torch.zeros_like(matrix)
    return ((left @ right) * values.mean()).to(matrix.dtype)


def total_change(slab: Slab) -> Tensor:
    """The sum of all members' changes, one at a time."""
    deltas = slab.deltas()
    total = next(deltas)
    for delta in deltas:
        total += delta
    return total
