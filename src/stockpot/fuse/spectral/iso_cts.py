"""Iso-CTS: a flat spectrum over common and task subspaces (Marczak et al., arXiv:2502.04959)."""

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
from stockpot.fuse.spectral.iso_c import total_change
from stockpot.fuse.spectral.tsv_m import running_mean
from stockpot.types import Fraction01, NonNegative


@fusers.register("iso_cts", paper="arXiv:2502.04959", needs_base=True, heavy=True, symmetric=True)
def iso_cts(
    *, scale: float = 1.0, common: Fraction01 = 0.8, rank_tolerance: NonNegative = RANK_TOLERANCE
) -> TensorFuser:
    """Merge a common subspace with one for each member, all with the same singular value.

    The first `common` share of each matrix' rank comes from the summed change; the rest is shared
    out equally, each member giving the leading directions of what the common space leaves of its
    change. All are made orthonormal and get the mean singular value. Where changes have fewer
    directions than their share, there are fewer. Tensors that are not matrices get the mean change.

    Args:
        scale: multiplies the merged change before it is added to the base.
        common: the share of the rank that the common subspace takes.
        rank_tolerance: singular values up to this share of a change's Frobenius norm count as
            rounding and are left out; 0 keeps all, as FusionBench does.
    """
    check_tolerance(rank_tolerance)

    def merge(slab: Slab) -> Tensor:
        if slab.base.ndim != 2:
            return slab.base + running_mean(slab) * scale
        return slab.base + _matrix(slab, common, rank_tolerance) * scale

    return TensorFuser(merge, room=of_matrices(18, member=1.3, gram=18))


def _matrix(slab: Slab, common: float, tolerance: float) -> Tensor:
    rank = min(slab.base.shape)
    own_total = round((rank - int(rank * common)) / slab.count) * slab.count
    total = total_change(slab)
    # Rounding up can give many members more than there is.
    shared = max(0, rank - own_total)
    basis = leading_triples(total, rounding_floor(total, tolerance), shared)
    parts = [basis]
    for index in range(slab.count):
        delta = slab.delta(index).double()
        # What is left of a change is signal only where it stands out from the change itself.
        floor = rounding_floor(delta, tolerance)
        rest = delta - basis.left @ (basis.left.T @ delta)
        parts.append(leading_triples(rest, floor, own_total // slab.count))
    left = torch.cat([part.left for part in parts], dim=1)
    values = torch.cat([part.values for part in parts])
    right = torch.cat([part.right for part in parts])
    if not len(values):
        return torch.zeros_like(slab.base)
    left, right = orthogonal_factor(left, tolerance), orthogonal_factor(right, tolerance)
    return ((left * values.mean()) @ right).to(slab.base.dtype)
