"""NearSwap: take a member's weights over where they are near the base's (mergekit)."""

from __future__ import annotations

from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, TensorFuser
from stockpot.types import NonNegative

_NEAREST = 1e-6


@fusers.register(
    "nearswap",
    paper="https://huggingface.co/alchemonaut/QuartetAnemoi-70B-t0.0001",
    needs_base=True,
    members=1,
)
def nearswap(*, distance: NonNegative = 1e-4) -> TensorFuser:
    """Take over the changes of one member that are small, and that much of the others.

    theta = (1 - w) theta_0 + w theta_1, w = min(1, distance / |tau|) for each weight: a change up
    to the distance is taken whole, a larger one is cut to it. Changes below 1e-6 count as that.

    Args:
        distance: the largest change; mergekit calls it `t`. It has the unit of the weights.
    """

    def merge(slab: Slab) -> Tensor:
        member, base = slab.member(0), slab.base
        share = (distance / (base - member).abs().clamp(min=_NEAREST)).clamp(0, 1)
        return share * member + (1 - share) * base

    return TensorFuser(merge, elementwise=True, keeps_equal=True)
