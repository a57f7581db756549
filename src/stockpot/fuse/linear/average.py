"""The plain mean of the members: the uniform soup (Wortsman et al., arXiv:2203.05482)."""

from __future__ import annotations

from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, TensorFuser


@fusers.register("average", paper="arXiv:2203.05482", linear=True, symmetric=True)
def average() -> TensorFuser:
    """The mean of the members.

    theta = (theta_1 + ... + theta_T) / T, summed in the order given. The base is not a member.
    """
    return TensorFuser(mean, elementwise=True, keeps_equal=True)


@fusers.register("uniform_soup", paper="arXiv:2203.05482", linear=True, symmetric=True)
def uniform_soup() -> TensorFuser:
    """The mean of fine-tuning runs of one model; the same rule as `average`."""
    return TensorFuser(mean, elementwise=True, keeps_equal=True)


def mean(slab: Slab) -> Tensor:
    """Left-to-right sum of the members, divided by their number."""
    members = slab.members()
    total = next(members).clone()
    for values in members:
        total += values
    return total / slab.count
