"""EMR-Merging: elect one change, mask and rescale it per task (Huang et al., 2405.17461)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, StagedFuser, Stages, SwitchFuser
from stockpot.fuse.sparse.combine import add_up


@fusers.register("emr", paper="arXiv:2405.17461", needs_base=True)
def emr() -> StagedFuser:
    """One elected change, and per member a mask and a rescaler: a model for every member.

    The elected change has the sign of the summed change (zero counts as negative) and the largest
    magnitude among the members that share it. A member's model adds it where the member's own
    change has that sign, times sum_l mean|tau_t| / sum_l mean|elected * mask_t| over tensors l.
    """

    def stages() -> Stages:
        rescalers = yield Rescalers()

        def merge(slab: Slab) -> list[Tensor]:
            deltas = list(slab.deltas())
            elected, masks = elect(deltas)
            return [
                slab.base + elected * mask * rescaler
                for mask, rescaler in zip(masks, rescalers, strict=True)
            ]

        return SwitchFuser(merge, elementwise=True)

    return StagedFuser(stages, passes=1, switches=True)


def elect(deltas: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """The elected change, and where each member's own change has its sign."""
    sign = (add_up(deltas) > 0).to(deltas[0].dtype) * 2 - 1
    masks = [delta * sign > 0 for delta in deltas]
    largest = torch.zeros_like(sign)
    for delta, mask in zip(deltas, masks, strict=True):
        largest = torch.maximum(largest, (delta * mask).abs())
    return largest * sign, masks


@dataclass(frozen=True)
class Rescalers:
    """Per member, the size of its own change over that of its masked elected change."""

    elementwise: bool = True

    def begin(self, count: int) -> dict[tuple[str, int], Tensor]:
        return {}

    def observe(self, seen: dict[tuple[str, int], Tensor], slab: Slab) -> None:
        deltas = list(slab.deltas())
        elected, masks = elect(deltas)
        sums = [
            [
                delta.abs().sum(dtype=torch.float64),
                (elected * mask).abs().sum(dtype=torch.float64),
            ]
            for delta, mask in zip(deltas, masks, strict=True)
        ]
        # Means per tensor, so that every tensor counts alike, whatever its size.
        seen[slab.name, slab.start] = torch.tensor(sums) / max(slab.info.numel, 1)

    def finish(self, parts: Sequence[dict[tuple[str, int], Tensor]]) -> list[float]:
        every = {place: sums for part in parts for place, sums in part.items()}
        total = torch.stack([every[place] for place in sorted(every)]).sum(dim=0)
        return [float(own / masked) if masked > 0 else 1.0 for own, masked in total]
