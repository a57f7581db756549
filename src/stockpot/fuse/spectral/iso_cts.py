"""Iso-CTS: a flat spectrum over common and task subspaces (Marczak et al., arXiv:2502.04959)."""

from __future__ import annotations

from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, TensorFuser
from stockpot.fuse.parameters import check_share
from stockpot.fuse.spectral.decompose import leading_triples, orthogonal_factor
from stockpot.fuse.spectral.iso_c import total_change
from stockpot.fuse.spectral.tsv_m import running_mean


@fusers.register("iso_cts", paper="arXiv:2502.04959", needs_base=True, symmetric=True)
def iso_cts(*, scale: float = 1.0, common: float = 0.8) -> TensorFuser:
    """Merge a common subspace with one for each member, all with the same singular value.

    The first `common` share of each matrix' rank comes from the summed change; the rest is shared
    out equally, each member giving the leading directions of what the common space leaves of its
    change. All are made orthonormal and get the mean singular value. Tensors that are not matrices
    get the mean change.

    Args:
        scale: multiplies the merged change before it is added to the base.
        common: the share of the rank that the common subspace takes.
    """
    check_share("common", common)

    def merge(slab: Slab) -> Tensor:
        merged = _matrix(slab, common) if slab.base.ndim == 2 else running_mean(slab)
        return slab.base + merged * scale

    return TensorFuser(merge)


def _matrix(slab: Slab, common: float) -> Tensor:
    rank = min(slab.base.shape)
    own_total = round((rank - int(rank * common)) / slab.count) * slab.count
    shared = rank - own_total
    own = own_total // slab.count
    basis = leading_triples(total_change(slab), shared)
    projector = basis.left @ basis.left.T
    left = slab.base.new_zeros(slab.base.shape[0], rank)
    values = slab.base.new_zeros(rank)
    right = slab.base.new_zeros(rank, slab.base.shape[1])
    for index in range(slab.count):
        delta = slab.delta(index)
        place = slice(index * own, (index + 1) * own)
        left[:, place], values[place], right[place] = leading_triples(
            delta - projector @ delta, own
        )
    place = slice(own_total, rank)
    left[:, place], values[place], right[place] = basis
    return (orthogonal_factor(left) * values.mean()) @ orthogonal_factor(right)
