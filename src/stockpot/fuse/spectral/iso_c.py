"""Iso-C: give the summed change a flat spectrum (Marczak et al., arXiv:2502.04959)."""

from __future__ import annotations

from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, TensorFuser
from stockpot.fuse.spectral.decompose import isotropic


@fusers.register("iso_c", paper="arXiv:2502.04959", needs_base=True, symmetric=True)
def iso_c(*, scale: float = 1.0) -> TensorFuser:
    """Replace the singular values of every matrix of the summed change by their mean.

    Tensors that are not matrices get the mean change.

    Args:
        scale: multiplies the merged change before it is added to the base.
    """

    def merge(slab: Slab) -> Tensor:
        merged = total_change(slab) / slab.count
        if slab.base.ndim == 2:
            merged *= slab.count
            factor, mean = isotropic(merged)
            merged = factor * mean
        return slab.base + merged * scale

    return TensorFuser(merge)


def total_change(slab: Slab) -> Tensor:
    """The sum of all members' changes, one at a time."""
    deltas = slab.deltas()
    total = next(deltas)
    for delta in deltas:
        total += delta
    return total
