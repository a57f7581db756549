"""NuSLERP: spherical interpolation of two models, or of what they changed (mergekit)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, SurveyFuser, TensorFuser
from stockpot.fuse.geometric.products import products, span_sum

_STRAIGHT = 1e-6
"""Sines below this are those of parallel or opposite vectors: there is no one arc between them."""


@fusers.register(
    "nuslerp", paper="https://github.com/arcee-ai/mergekit", members=2, takes_base=True
)
def nuslerp(
    *, t: float = 0.5, along: Literal["tensor", "last", "first"] = "tensor"
) -> TensorFuser | SurveyFuser:
    """Interpolate along an arc between two models, or around a base between their changes.

    As `slerp`, with three differences: where a base is given, the arc is between the two changes;
    a tensor may be cut into vectors that each have an angle of their own; and only what is parallel
    or opposite to rounding is interpolated linearly.

    Args:
        t: the share of the second model.
        along: the vectors between which angles are taken: a whole tensor, or each of its vectors
            along the last axis (the rows of a matrix) or the first (its columns).
    """

    def survey(slab: Slab) -> Callable[[Slab], Tensor]:
        inner = products(slab, changes=slab.based)
        first, second = float(inner[0, 0]), float(inner[1, 1])
        size = math.sqrt(first) * math.sqrt(second)
        cosine = max(-1.0, min(1.0, float(inner[0, 1]) / size)) if size else 1.0
        angle = math.acos(cosine)
        sine = math.sin(angle)
        if sine < _STRAIGHT:
            factors = [1 - t, t]
        else:
            factors = [math.sin((1 - t) * angle) / sine, math.sin(t * angle) / sine]
        return lambda part: span_sum(part, factors)

    def merge(slab: Slab) -> Tensor:
        axis = -1 if along == "last" else 0
        first, second = slab.deltas() if slab.based else slab.members()
        if t in (0, 1):
            return slab.member(int(t))
        one, other = first.double(), second.double()
        size = one.norm(dim=axis, keepdim=True) * other.norm(dim=axis, keepdim=True)
        inner = (one * other).sum(dim=axis, keepdim=True)
        cosine = torch.where(size > 0, inner / size, 1.0).clamp(-1, 1)
        angle = cosine.acos()
        sine = angle.sin()
        straight = sine < _STRAIGHT
        safe = torch.where(straight, 1.0, sine)
        left = torch.where(straight, 1 - t, ((1 - t) * angle).sin() / safe)
        right = torch.where(straight, t, (t * angle).sin() / safe)
        change = left.to(first.dtype) * first + right.to(first.dtype) * second
        return slab.base + change if slab.based else change

    if along == "tensor":
        return SurveyFuser(survey, keeps_equal=True)
    return TensorFuser(merge, keeps_equal=True)
