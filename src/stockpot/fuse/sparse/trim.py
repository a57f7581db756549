"""Keep a part of a change: by magnitude, by rank, or by chance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.fuse.sparse.select import kth_smallest


def just_below(threshold: float) -> float:
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
    """Keep exactly int(density * n) entries, at least one, the largest.

    Where equal magnitudes straddle the limit, torch's sort decides between them.
    """
    count = change.numel()
    if density >= 1:
        return change
    if density <= 0 or not count:
        return torch.zeros_like(change)
    kept = max(1, int(density * count))
    size = change.abs().reshape(-1)
    threshold = kth_smallest(size, count - kept + 1)
    mask = size >= threshold
    if int(mask.sum()) > kept:
        mask = torch.zeros_like(mask)
        mask[size.argsort(descending=True)[:kept]] = True
    return change * mask.view_as(change)


def keep_ranks(change: Tensor, first: int, last: int) -> Tensor:
    """Keep the entries whose rank by magnitude lies in [first, last), 0 being the smallest.

    Where equal magnitudes straddle a limit, torch's sort decides between them.
    """
    if last <= first:
        return torch.zeros_like(change)
    size = change.abs().reshape(-1)
    low, high = kth_smallest(size, first + 1), kth_smallest(size, last)
    mask = (size >= low) & (size <= high)
    if int(mask.sum()) > last - first:
        mask = torch.zeros_like(mask)
        mask[size.sort().indices[first:last]] = True
    return change * mask.view_as(change)


def match_l1(change: Tensor, kept: Tensor) -> Tensor:
    """The kept part, scaled to the sum of magnitudes of the whole change."""
    before, after = change.abs().sum(), kept.abs().sum()
    return kept if before < 1e-7 or after < 1e-7 else kept * (before / after)


def weighed(changes: Iterable[Tensor], weights: Sequence[float] | None) -> Iterable[Tensor]:
    """The changes, each multiplied by its member's weight."""
    if weights is None:
        return changes
    return (change * weight for change, weight in zip(changes, weights, strict=True))
