"""Subspace Boosting: lift the small singular values of a merge (Skorobogat et al., 2506.16506)."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.fuse.finish import finishers
from stockpot.fuse.finish.finisher import Finisher
from stockpot.fuse.fuser import Slab
from stockpot.fuse.parameters import check_share
from stockpot.fuse.spectral.decompose import (
    RANK_TOLERANCE,
    check_tolerance,
    leading_triples,
    rounding_floor,
)
from stockpot.types import NonNegative


@finishers.register("subspace_boosting", paper="arXiv:2506.16506")
def subspace_boosting(
    *, beta: float = 0.01, rank_tolerance: NonNegative = RANK_TOLERANCE
) -> Finisher:
    """Raise every singular value of the merged change to that at which a share of their sum is.

    With values s_1 >= s_2 >= ... and k the first at which s_1 + ... + s_k reaches `beta` of the sum
    of all, those after s_k become s_k. The smaller the share, the flatter the spectrum: 0 makes all
    equal to the largest, 1 changes nothing. Directions in which there is no change stay without
    one.

    Args:
        beta: the share of the sum of the singular values; public programs of the method take 0.01,
            and may take another for attention ({"*attn*": 0.1, "*": 0.01}).
        rank_tolerance: singular values up to this share of a change's Frobenius norm count as
            rounding and are left out; 0 lifts them too, as those programs do.
    """
    check_share("beta", beta)
    check_tolerance(rank_tolerance)

    def finish(change: Tensor, slab: Slab) -> Tensor:
        left, values, right = leading_triples(change, rounding_floor(change, rank_tolerance))
        if not len(values) or beta == 1:
            return change
        shares = values.cumsum(0) / values.sum()
        # The sum of all is 1 up to its last bits, so the last value is always found.
        place = min(int((shares < beta).sum()), len(values) - 1)
        lifted = torch.clamp(values, min=values[place])
        return ((left * lifted) @ right).to(change.dtype)

    return Finisher(finish)
