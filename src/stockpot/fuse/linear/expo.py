"""ExPO: go on past the fine-tuned model in the direction it took (Zheng et al., 2404.16792)."""

from __future__ import annotations

from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, TensorFuser
from stockpot.fuse.linear.average import mean


@fusers.register("expo", paper="arXiv:2404.16792", needs_base=True, linear=True, symmetric=True)
def expo(*, alpha: float = 0.1) -> TensorFuser:
    """Extrapolate from the base through the members' mean.

    theta = m + alpha (m - theta_0), m the mean of the members.

    Args:
        alpha: how far to go beyond, as a share of the distance already gone.
    """

    def merge(slab: Slab) -> Tensor:
        middle = mean(slab)
        return middle + (middle - slab.base) * alpha

    return TensorFuser(merge, elementwise=True, keeps_equal=True)
