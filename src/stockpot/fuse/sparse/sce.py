"""SCE: select what varies, weigh by energy, erase minorities (Wan et al., arXiv:2408.07990)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, SurveyFuser
from stockpot.fuse.parameters import check_share
from stockpot.fuse.sparse.combine import RunningSum, add_up
from stockpot.fuse.sparse.varying import most_varying


@fusers.register(
    "sce",
    paper="arXiv:2408.07990",
    needs_base=True,
    symmetric=True,
    presets={"paper": {"density": 0.1, "scale": 1.0}, "mergekit": {"density": 1.0, "scale": 1.0}},
)
def sce(*, density: float = 0.1, scale: float = 1.0) -> SurveyFuser:
    """Select the weights whose changes vary most, weigh members by energy, drop minority signs.

    Per tensor: keep the share of weights with the largest variance over members; give each member
    the weight mean(tau_t^2), normalised; merge the changes that have the sign of the sum, divided
    by the weights of those that have it.

    Args:
        density: the share of the varying weights that is kept; 1 keeps all (mergekit's default).
        scale: multiplies the merged change before it is added to the base.
    """
    check_share("density", density)

    def survey(slab: Slab) -> Callable[[Slab], Tensor]:
        chosen = most_varying(slab, density) if density < 1 else None
        shares = _shares(slab, chosen)

        def merge(part: Slab) -> Tensor:
            mask = chosen(part) if chosen else None
            elected = (add_up(_selected(part, mask)) >= 0).to(part.base.dtype) * 2 - 1
            merged, divisor = RunningSum(), RunningSum()
            for delta, share in zip(_selected(part, mask), shares, strict=True):
                own = share * (delta.sign() == elected)
                merged.add(delta * own)
                divisor.add(own)
            return (merged.value / divisor.value.clamp(min=1e-6)).mul_(scale).add_(part.base)

        return merge

    return SurveyFuser(survey, looks=3 if density < 1 else 1)


def _selected(part: Slab, mask: Tensor | None) -> Iterator[Tensor]:
    return part.deltas() if mask is None else (delta * mask for delta in part.deltas())


def _shares(slab: Slab, chosen: Callable[[Slab], Tensor] | None) -> Tensor:
    """How much each member counts: the mean square of its selected changes, normalised."""
    sums = torch.zeros(slab.count, dtype=torch.float64)
    for part in slab.stretches():
        mask = chosen(part) if chosen else None
        own = [delta.square().sum() for delta in _selected(part, mask)]
        sums += torch.stack(own).cpu()
    dtype = torch.promote_types(torch.float32, slab.info.dtype)
    energy = sums.to(dtype) / max(slab.info.numel, 1)
    total = energy.sum()
    return energy / total if total >= 1e-6 else torch.full_like(energy, 1 / slab.count)
