"""The Karcher mean: the middle of several tensors on the sphere of directions."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, SurveyFuser
from stockpot.fuse.geometric.products import products
from stockpot.fuse.linear.weighted import weighted_sum
from stockpot.fuse.parameters import normalized
from stockpot.types import Natural, NonNegative


@fusers.register("karcher", paper="doi:10.1002/cpa.3160300502", symmetric=True)
def karcher(
    *, steps: Natural = 10, tol: NonNegative = 1e-5, weights: list[float] | None = None
) -> SurveyFuser:
    """The Riemannian mean of the members' directions, with their mean length.

    Every tensor is divided by its length. From the normalised mean of the directions, step along
    the mean of the tangent vectors that lead to each member, until that mean vanishes. The result
    has the weighted mean of the lengths.

    Args:
        steps: the largest number of steps.
        tol: the length of the mean tangent at which to stop.
        weights: one number per member, normalised; all equal by default.
    """

    def survey(slab: Slab) -> Callable[[Slab], Tensor]:
        shares = normalized(weights, True) or [1 / slab.count] * slab.count
        inner = products(slab, changes=False)
        lengths = inner.diagonal().clamp(min=0).sqrt()
        known = lengths > tol
        if not bool(known.any()):
            return lambda part: torch.zeros_like(part.member(0))
        wanted = torch.tensor(shares, dtype=torch.float64)
        size = float(wanted @ lengths)
        safe = torch.where(known, lengths, 1.0)
        parts = torch.where(known, wanted, 0.0)
        found = _middle(inner / safe[:, None] / safe, parts / parts.sum(), steps, tol)
        factors = (size * found / safe).tolist()
        return lambda part: weighted_sum(part, factors)

    return SurveyFuser(survey, keeps_equal=True)


def _middle(cosines: Tensor, shares: Tensor, steps: int, tol: float) -> Tensor:
    """The middle of unit vectors as a sum of them: how much of each it takes.

    It never leaves their span, so that its way there is walked in these numbers.

    Args:
        cosines: between all pairs.
        shares: how much each counts; none for one that has no direction.
        steps: the largest number of steps.
        tol: the length of the mean tangent at which to stop.
    """

    def length(vector: Tensor) -> float:
        return math.sqrt(max(float(vector @ cosines @ vector), 0.0))

    middle = shares.clone()
    size = length(middle)
    if size < tol:
        middle = torch.zeros_like(shares)
        middle[int(shares.nonzero()[0])] = 1.0
    else:
        middle /= size
    for _ in range(steps):
        near = (cosines @ middle).clamp(-1.0, 1.0).tolist()
        pulls = torch.zeros_like(middle)
        back = 0.0
        for index, (share, cosine) in enumerate(zip(shares.tolist(), near, strict=True)):
            angle = math.acos(cosine)
            # Opposite directions have no shortest way between them, equal ones need none.
            if not share or angle < tol or math.sin(angle) == 0:
                continue
            pulls[index] = share * angle / math.sin(angle)
            back += float(pulls[index]) * cosine
        tangent = pulls - back * middle
        step = length(tangent)
        if step <= tol:
            break
        middle = math.cos(step) * middle + (math.sin(step) / step) * tangent
        size = length(middle)
        if size > tol:
            middle = middle / size
    return middle
