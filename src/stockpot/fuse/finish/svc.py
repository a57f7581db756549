"""Singular Value Calibration: undo what members add up in common (arXiv:2602.05536)."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.fuse.finish import finishers
from stockpot.fuse.finish.finisher import Finisher
from stockpot.fuse.fuser import Slab
from stockpot.fuse.spectral.decompose import (
    RANK_TOLERANCE,
    check_tolerance,
    leading_triples,
    rounding_floor,
    tied,
)
from stockpot.types import NonNegative, Positive

_LEAST = 1e-12
"""A response whose square is no more than this is none, as in FusionBench."""


@finishers.register("svc", paper="arXiv:2602.05536")
def svc(*, alpha: Positive = 0.1, rank_tolerance: NonNegative = RANK_TOLERANCE) -> Finisher:
    """Shrink the directions of the merged change in which members are counted several times.

    Along a left singular vector u of the merged change D, member t responds with u' D_t and the
    merge with u' D. How far the merge goes along a member's response is
    s_t = <u' D, u' D_t> / |u' D_t|^2: above 1 where it was added up. The singular value is
    multiplied by T / sum_t max(alpha, s_t). Equal singular values, whose vectors may be turned
    among themselves, get one factor from all of their responses.

    Args:
        alpha: the least that a member counts for; higher shrinks more. FusionBench takes 0.1 after
            average, task arithmetic, TIES and Iso-C, 0.2 after Iso-CTS, 1 after TSV-M and WUDI.
        rank_tolerance: singular values up to this share of a change's Frobenius norm count as
            rounding and are left out; 0 keeps all, as FusionBench does.
    """
    check_tolerance(rank_tolerance)

    def finish(change: Tensor, slab: Slab) -> Tensor:
        floor = rounding_floor(change, rank_tolerance)
        left, values, right = leading_triples(change, floor)
        if not len(values):
            return change
        merged = values[:, None] * right
        groups = tied(values, floor)
        total = torch.zeros_like(values)
        for delta in slab.deltas():
            response = left.T @ delta.double()
            along = _by_group((merged * response).sum(1), groups)
            size = _by_group(response.square().sum(1), groups).clamp(min=_LEAST)
            total += (along / size).clamp(min=alpha)
        return ((left * (values * slab.count / total)) @ right).to(change.dtype)

    return Finisher(finish)


def _by_group(numbers: Tensor, groups: Tensor) -> Tensor:
    """Each number replaced by the sum of its group."""
    sums = torch.zeros_like(numbers).index_add_(0, groups, numbers)
    return sums[groups]
