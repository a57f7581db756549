"""Model Stock: how far to trust the mean, from the angle between changes (Jang, 2403.19522)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, SurveyFuser
from stockpot.fuse.geometric.products import products
from stockpot.fuse.linear.average import mean

_TINY = 1e-8


@fusers.register(
    "model_stock",
    paper="arXiv:2403.19522",
    needs_base=True,
    at_least=2,
    symmetric=True,
    presets={"fusionbench": {"pairs": "angle"}, "mergekit": {"pairs": "cosine"}},
)
def model_stock(*, pairs: Literal["cosine", "angle"] = "cosine") -> SurveyFuser:
    """Interpolate between the base and the mean, by the angle between the members' changes.

    For each tensor r = T c / (1 + (T - 1) c), theta = r mean + (1 - r) theta_0, with c the cosine
    between the changes of two members, averaged over all pairs.

    Args:
        pairs: average the cosines of the pairs (as mergekit does) or their angles (FusionBench).
    """

    def survey(slab: Slab) -> Callable[[Slab], Tensor]:
        ratio = _ratio(products(slab, changes=True), pairs)
        return lambda part: mean(part) * ratio + part.base * (1.0 - ratio)

    return SurveyFuser(survey)


def _ratio(inner: Tensor, pairs: str) -> float:
    count = len(inner)
    cosines = []
    for i in range(count):
        for j in range(i + 1, count):
            lengths = math.sqrt(float(inner[i, i]) * float(inner[j, j]))
            cosines.append(max(-1.0, min(1.0, float(inner[i, j]) / (lengths + _TINY))))
    if pairs == "angle":
        middle = math.cos(sum(map(math.acos, cosines)) / len(cosines))
    else:
        middle = sum(cosines) / len(cosines)
    below = 1 + (count - 1) * middle
    # Changes that point away from each other leave no plane to project on: stay at the base.
    return count * middle / below if abs(below) > 1e-6 else 0.0
