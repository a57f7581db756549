"""The Karcher mean: the middle of several tensors on the sphere of directions."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, TensorFuser
from stockpot.fuse.geometric.slerp import length
from stockpot.fuse.parameters import normalized
from stockpot.types import Natural, NonNegative


@fusers.register("karcher", paper="doi:10.1002/cpa.3160300502", symmetric=True)
def karcher(
    *, steps: Natural = 10, tol: NonNegative = 1e-5, weights: list[float] | None = None
) -> TensorFuser:
    """The Riemannian mean of the members' directions, with their mean length.

    Every tensor is divided by its length. From the normalised mean of the directions, step along
    the mean of the tangent vectors that lead to each member, until that mean vanishes. The result
    has the weighted mean of the lengths.

    Args:
        steps: the largest number of steps.
        tol: the length of the mean tangent at which to stop.
        weights: one number per member, normalised; all equal by default.
    """

    def merge(slab: Slab) -> Tensor:
        shares = normalized(weights, True) or [1 / slab.count] * slab.count
        tensors = list(slab.members())
        lengths = [length(values) for values in tensors]
        size = sum(share * value for share, value in zip(shares, lengths, strict=True))
        known = [i for i, value in enumerate(lengths) if value > tol]
        if not known:
            return torch.zeros_like(tensors[0])
        total = sum(shares[i] for i in known)
        parts = [(shares[i] / total, tensors[i] / lengths[i]) for i in known]
        return size * _middle(parts, steps, tol)

    return TensorFuser(merge, keeps_equal=True)


def _middle(parts: list[tuple[float, Tensor]], steps: int, tol: float) -> Tensor:
    middle = torch.zeros_like(parts[0][1])
    for share, unit in parts:
        middle += share * unit
    size = length(middle)
    middle = parts[0][1].clone() if size < tol else middle / size
    for _ in range(steps):
        tangent = torch.zeros_like(middle)
        for share, unit in parts:
            cosine = max(-1.0, min(1.0, float((middle * unit).sum(dtype=torch.float64))))
            angle = math.acos(cosine)
            # Opposite directions have no shortest way between them, equal ones need none.
            if angle < tol or math.sin(angle) == 0:
                continue
            tangent += (share * angle / math.sin(angle)) * (unit - cosine * middle)
        step = length(tangent)
        if step < tol:
            break
        middle = math.cos(step) * middle + (math.sin(step) / step) * tangent
        size = length(middle)
        if size > tol:
            middle = middle / size
    return middle
