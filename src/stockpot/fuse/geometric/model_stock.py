"""Model Stock: how far to trust the mean, from the angle between changes (Jang, 2403.19522)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, TensorFuser
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
def model_stock(*, pairs: Literal["cosine", "angle"] = "cosine") -> TensorFuser:
    """Interpolate between the base and the mean, by the angle between the members' changes.

    For each tensor r = T c / (1 + (T - 1) c), theta = r mean + (1 - r) theta_0, with c the cosine
    between the changes of two members, averaged over all pairs.

    Args:
        pairs: average the cosines of the pairs (as mergekit does) or their angles (FusionBench).
    """

    def merge(slab: Slab) -> Tensor:
        ratio = _ratio(slab, pairs)
        return mean(slab) * ratio + slab.base * (1.0 - ratio)

    return TensorFuser(merge)


def _ratio(slab: Slab, pairs: str) -> float:
    deltas = list(slab.deltas())
    lengths = [float(torch.sum(d.square(), dtype=torch.float64)) for d in deltas]
    cosines = []
    for i, first in enumerate(deltas):
        for j in range(i + 1, len(deltas)):
            product = float(torch.sum(first * deltas[j], dtype=torch.float64))
            cosine = product / (math.sqrt(lengths[i] * lengths[j]) + _TINY)
            cosines.append(max(-1.0, min(1.0, cosine)))
    if pairs == "angle":
        middle = math.cos(sum(map(math.acos, cosines)) / len(cosines))
    else:
        middle = sum(cosines) / len(cosines)
    below = 1 + (len(deltas) - 1) * middle
    # Changes that point away from each other leave no plane to project on: stay at the base.
    return len(deltas) * middle / below if abs(below) > 1e-6 else 0.0
