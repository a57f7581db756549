"""PCB-Merging: balance the competition of parameters (Du et al., arXiv:2410.02396)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, StagedFuser, Stages, TensorFuser
from stockpot.fuse.parameters import check_share
from stockpot.fuse.sparse.combine import add_up
from stockpot.fuse.sparse.select import TABLE, Magnitudes, order_statistics

_OUTLIERS = 0.0001
_LARGEST_POWER = 80.0
"""exp of more than 88 is no fp32 number. A factor that all scores of a member share cancels when
they are normalised, so with more members than this the power of the largest magnitude stays here.
"""


@fusers.register("pcb", paper="arXiv:2410.02396", needs_base=True, symmetric=True)
def pcb(*, density: float = 0.1, scale: float = 1.2) -> StagedFuser:
    """Merge changes by a score of their own size and their agreement with the other members.

    Over the whole model, magnitudes are clamped at their 0.01 % extremes and normalised to [0, 1]
    as m_t. The score is exp(T m_t^2) tanh(tau_t sum_s tau_s); its largest share `density` is kept,
    normalised to [0, 1], and weighs the clamped changes.

    Args:
        density: the share of the scores that is kept.
        scale: multiplies the merged change before it is added to the base.
    """
    check_share("density", density)

    def stages() -> Stages:
        sizes = yield from order_statistics(
            Magnitudes(),
            lambda total: [
                int(total * _OUTLIERS) + 1,
                max(1, int(total * (1 - _OUTLIERS) - 1) + 1),
            ],
        )
        scores = Scores(tuple((low, high) for low, high in sizes))
        bounds = yield from order_statistics(
            scores, lambda total: [min(int(total * (1 - density)) + 1, total), total]
        )

        def merge(slab: Slab) -> Tensor:
            merged = torch.zeros_like(slab.base)
            divisor = torch.zeros_like(slab.base)
            for index, score in enumerate(scores(slab)):
                low, high = bounds[index]
                share = (score.clamp(low, high) - low) / max(high - low, 1e-12)
                merged += share * scores.clamped(slab.delta(index), index)
                divisor += share
            return (merged / divisor.clamp(min=1e-12)).mul_(scale).add_(slab.base)

        return TensorFuser(merge, elementwise=True)

    return StagedFuser(stages, passes=4, counts=2 * TABLE)


@dataclass(frozen=True)
class Scores:
    """How much each member's change should count, given the bounds of its magnitudes."""

    bounds: tuple[tuple[float, float], ...]

    def __call__(self, slab: Slab) -> Iterator[Tensor]:
        total = add_up(slab.deltas())
        excess = max(0.0, slab.count - _LARGEST_POWER)
        for delta, (low, high) in zip(slab.deltas(), self.bounds, strict=True):
            share = (delta.abs().clamp_(low, high) - low) / max(high - low, 1e-12)
            power = share.square_().mul_(slab.count).sub_(excess)
            yield torch.exp(power) * torch.tanh(delta * total)

    def clamped(self, delta: Tensor, index: int) -> Tensor:
        """A change with its magnitude kept inside the bounds."""
        low, high = self.bounds[index]
        return delta.sign() * delta.abs().clamp_(low, high)
