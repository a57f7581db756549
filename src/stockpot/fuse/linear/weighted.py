"""A weighted sum of the members: convex, or affine with negative weights."""

from __future__ import annotations

from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, TensorFuser
from stockpot.fuse.parameters import normalized


@fusers.register("weighted", paper="arXiv:2302.10164", linear=True)
def weighted(*, weights: list[float], normalize: bool = True) -> TensorFuser:
    """The weighted sum of the members.

    theta = sum_t w_t theta_t, summed in the order given. Weights may be negative: an affine soup
    extrapolates beyond its members.

    Args:
        weights: one number per member.
        normalize: divide the weights by their sum.
    """
    factors = normalized(weights, normalize) or weights
    affine = abs(sum(factors) - 1) < 1e-9
    return TensorFuser(
        lambda slab: weighted_sum(slab, factors), elementwise=True, keeps_equal=affine
    )


def weighted_sum(slab: Slab, factors: list[float]) -> Tensor:
    """Left-to-right sum of the members times their factors."""
    members = slab.members()
    total = next(members) * factors[0]
    for values, factor in zip(members, factors[1:], strict=True):
        total += values * factor
    return total
