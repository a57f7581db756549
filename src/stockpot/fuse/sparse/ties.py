"""TIES-Merging: trim small changes, elect a sign, merge what agrees (Yadav et al., 2306.01708).

With `scope="model"` each member keeps the changes whose magnitude reaches that of its k-th
smallest, k = d - int(density * d) over all d weights, and a weight whose trimmed changes cancel
exactly takes the sign that prevails in the whole model. With `scope="tensor"` each tensor keeps
exactly int(density * n) changes (at least one) and a cancelled weight counts as positive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.kinds import Slab, StagedFuser, Stages, TensorFuser
from stockpot.fuse.sparse.select import kth_magnitudes

Reduce = Literal["mean", "sum", "max"]
Scope = Literal["model", "tensor"]


@fusers.register("ties", paper="arXiv:2306.01708", needs_base=True, symmetric=True)
def ties(
    *,
    density: float = 0.2,
    scale: float = 0.3,
    reduce: Reduce = "mean",
    scope: Scope = "model",
    weights: list[float] | None = None,
) -> StagedFuser | TensorFuser:
    """Trim small changes, elect a sign, merge what agrees.

    Args:
        density: the share of each member's changes that is kept, the largest first.
        scale: multiplies the merged change before it is added to the base.
        reduce: how agreeing changes combine: their mean (the paper), their sum, or the largest.
        scope: trim over the whole model (the paper) or in each tensor.
        weights: one number per member, multiplied in before signs are elected; all 1 by default.
    """
    if scope == "tensor":

        def merge_tensor(slab: Slab) -> Tensor:
            trimmed = [keep_largest(delta, density) for delta in slab.deltas()]
            return slab.base + scale * disjoint(trimmed, weights, reduce, majority=1.0)

        return TensorFuser(merge_tensor)

    def stages() -> Stages:
        thresholds = yield from kth_magnitudes(lambda total: total - int(total * density))
        limits = tuple(map(_just_below, thresholds))
        majority = yield SignSum(limits, None if weights is None else tuple(weights))

        def merge(slab: Slab) -> Tensor:
            trimmed = [trim(slab.delta(i), limit) for i, limit in enumerate(limits)]
            merged = disjoint(trimmed, weights, reduce, majority)
            return merged.mul_(scale).add_(slab.base)

        return TensorFuser(merge, elementwise=True)

    return StagedFuser(stages, passes=3)


@dataclass(frozen=True)
class SignSum:
    """The sign that prevails among the elected signs of all weights: -1, 0 or 1."""

    limits: tuple[float, ...]
    weights: tuple[float, ...] | None
    elementwise: bool = True

    def begin(self, count: int) -> list[float]:
        return [0.0]

    def observe(self, seen: list[float], slab: Slab) -> None:
        trimmed = [trim(slab.delta(i), limit) for i, limit in enumerate(self.limits)]
        total = add_up(weighed(trimmed, self.weights))
        seen[0] += float(total.sign_().sum(dtype=torch.float64))

    def finish(self, parts: Sequence[list[float]]) -> float:
        total = sum(part[0] for part in parts)
        return float((total > 0) - (total < 0))


def _just_below(threshold: float) -> float:
    """The float before a threshold: being above it is reaching the threshold."""
    value = torch.tensor(threshold, dtype=torch.float32)
    return float(torch.nextafter(value, torch.tensor(-1.0)))


def trim(change: Tensor, limit: float) -> Tensor:
    """Set to zero every change whose magnitude, in fp32, is not above the limit."""
    if limit < 0:
        return change
    if change.dtype == torch.float32:
        return F.hardshrink(change, limit)
    return change * (change.float().abs() > limit)


def keep_largest(change: Tensor, density: float) -> Tensor:
    """Keep exactly int(density * n) entries, at least one; the first ones among equals."""
    count = change.numel()
    if density >= 1:
        return change
    if density <= 0 or not count:
        return torch.zeros_like(change)
    kept = max(1, int(density * count))
    size = change.abs().reshape(-1)
    threshold = size.kthvalue(count - kept + 1).values
    mask = size > threshold
    ties_left = kept - int(mask.sum())
    equal = (size == threshold).nonzero().squeeze(1)[:ties_left]
    mask[equal] = True
    return change * mask.view_as(change)


def weighed(changes: Sequence[Tensor], weights: Sequence[float] | None) -> Sequence[Tensor]:
    """The changes, each multiplied by its member's weight."""
    if weights is None:
        return changes
    return [change * weight for change, weight in zip(changes, weights, strict=True)]


def add_up(tensors: Sequence[Tensor]) -> Tensor:
    """The sum over members, in the order of torch's own reduction over the first dimension."""
    if len(tensors) >= 16:
        return torch.stack(list(tensors)).sum(dim=0)
    total = tensors[0].clone()
    for values in tensors[1:]:
        total += values
    return total


def disjoint(
    changes: Sequence[Tensor], weights: Sequence[float] | None, reduce: Reduce, majority: float
) -> Tensor:
    """Combine, weight by weight, the changes that have the elected sign.

    Args:
        changes: the trimmed changes of all members.
        weights: one number per member, or none.
        reduce: mean, sum or max.
        majority: the sign of a weight whose changes cancel exactly.
    """
    changes = weighed(changes, weights)
    total = add_up(changes)
    positive = total >= 0 if majority > 0 else total > 0
    ups = [change.clamp(min=0) for change in changes]
    downs = [change.clamp(max=0) for change in changes]
    if reduce == "max":
        up, down = ups[0], downs[0]
        for high, low in zip(ups[1:], downs[1:], strict=True):
            up, down = torch.maximum(up, high), torch.minimum(down, low)
        largest = torch.where(positive, up, down)
        return largest if majority else largest * (total != 0)
    merged = torch.where(positive, add_up(ups), add_up(downs))
    if reduce == "mean":
        shares = weights if weights is not None else [1.0] * len(changes)
        rising = add_up([up.sign() * share for up, share in zip(ups, shares, strict=True)])
        falling = add_up([low.sign() * -share for low, share in zip(downs, shares, strict=True)])
        divisor = torch.where(positive, rising, falling)
        divisor[divisor == 0] = 1
        merged /= divisor
    return merged
