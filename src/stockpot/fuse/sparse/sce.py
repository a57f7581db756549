"""SCE: select what varies, weigh by energy, erase minorities (Wan et al., arXiv:2408.07990)."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, TensorFuser
from stockpot.fuse.parameters import check_share


@fusers.register(
    "sce",
    paper="arXiv:2408.07990",
    needs_base=True,
    symmetric=True,
    presets={"paper": {"density": 0.1, "scale": 1.0}, "mergekit": {"density": 1.0, "scale": 1.0}},
)
def sce(*, density: float = 0.1, scale: float = 1.0) -> TensorFuser:
    """Select the weights whose changes vary most, weigh members by energy, drop minority signs.

    Per tensor: keep the share of weights with the largest variance over members; give each member
    the weight mean(tau_t^2), normalised; merge the changes that have the sign of the sum, divided
    by the weights of those that have it.

    Args:
        density: the share of the varying weights that is kept; 1 keeps all (mergekit's default).
        scale: multiplies the merged change before it is added to the base.
    """
    check_share("density", density)

    def merge(slab: Slab) -> Tensor:
        deltas = slab.stacked_deltas()
        if density < 1:
            deltas *= _most_varying(deltas, density)
        energy = deltas.square().reshape(slab.count, -1).mean(dim=1)
        total = energy.sum()
        shares = energy / total if total >= 1e-6 else torch.full_like(energy, 1 / slab.count)
        shares = shares.view(-1, *[1] * (deltas.ndim - 1))
        elected = (deltas.sum(dim=0) >= 0).to(deltas.dtype) * 2 - 1
        shares = shares * (deltas.sign() == elected)
        merged = (deltas * shares).sum(dim=0) / shares.sum(dim=0).clamp(min=1e-6)
        return merged.mul_(scale).add_(slab.base)

    return TensorFuser(merge)


def _most_varying(deltas: Tensor, density: float) -> Tensor:
    variance = deltas.var(dim=0, unbiased=False)
    kept = int(torch.count_nonzero(variance) * density)
    mask = torch.zeros_like(variance)
    if kept:
        mask.view(-1)[variance.view(-1).topk(kept).indices] = 1
    return mask
