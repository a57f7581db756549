"""Multi-SLERP: many models by the mean of their directions (Goddard, mergekit)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, SurveyFuser
from stockpot.fuse.geometric.products import products, span_sum
from stockpot.fuse.parameters import normalized

_NO_LENGTH = 1e-8


@fusers.register(
    "multislerp",
    paper="https://goddard.blog/posts/multislerp-wow-what-a-cool-idea",
    takes_base=True,
    symmetric=True,
)
def multislerp(*, weights: list[float] | None = None, normalize: bool = True) -> SurveyFuser:
    """The mean direction of the members, or of their changes from a base, with their mean length.

    Per tensor theta = l m / |m| with m = sum_t w_t theta_t / |theta_t| and l = sum_t w_t |theta_t|;
    with a base, the same of the changes, added to it. It was published as a step in the tangent
    space at m, but the tangents to all members add up to nothing there. Directions that cancel
    leave no mean: there the weighted sum of the members is taken.

    Args:
        weights: one number per member; all equal by default.
        normalize: divide the weights by their sum.
    """
    given = normalized(weights, normalize)

    def survey(slab: Slab) -> Callable[[Slab], Tensor]:
        shares = given or [1 / slab.count if normalize else 1.0] * slab.count
        wanted = torch.tensor(shares, dtype=torch.float64)
        inner = products(slab, changes=slab.based)
        lengths = inner.diagonal().clamp(min=0).sqrt()
        safe = torch.where(lengths > 0, lengths, 1.0)
        parts = wanted / safe
        size = math.sqrt(max(float(parts @ inner @ parts), 0.0))
        if slab.count == 1 or size < _NO_LENGTH:
            return lambda part: span_sum(part, shares)
        factors = (float(wanted @ lengths) / size * parts).tolist()
        return lambda part: span_sum(part, factors)

    return SurveyFuser(survey, keeps_equal=normalize)
