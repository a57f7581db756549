"""Which changes are kept: exact order statistics of a whole model, and trimming by them.

Order statistics take two streamed passes. The bits of a float, read as a signed integer with the
magnitude of negative ones flipped, order as the floats do. The first pass counts the leading 16
bits, which tell the bin of the wanted value; the second counts the trailing 16 bits inside that
bin. Nothing is sorted or kept, whatever the size of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.fuse.fuser import Pass, Slab

BINS = 1 << 16
TABLE = 8 * BINS
"""Bytes in which the values of one member are counted, for each rank that is wanted."""
_MAGNITUDE = 0x7FFFFFFF

Measured = Callable[[Slab], Iterable[Tensor]]
"""What is ranked: one tensor per member in order, or one for all. Equal callables share passes."""
Ranks = Callable[[int], Sequence[int]]
"""From the number of values to the ranks wanted, counted from 1 for the smallest."""


@dataclass(frozen=True)
class Magnitudes:
    """The size of every member's change."""

    def __call__(self, slab: Slab) -> Iterator[Tensor]:
        return (delta.abs_() for delta in slab.deltas())


def sort_keys(values: Tensor) -> Tensor:
    """Integers that order as the values do in fp32, flat."""
    bits = values.float().reshape(-1).view(torch.int32)
    return bits ^ ((bits >> 31) & _MAGNITUDE)


@dataclass(frozen=True)
class LeadingBits:
    """Per member, how many values begin with each pattern of 16 bits."""

    measured: Measured
    elementwise: bool = True

    def begin(self, count: int) -> Tensor:
        return torch.zeros(count, BINS, dtype=torch.int64)

    def observe(self, seen: Tensor, slab: Slab) -> None:
        for index, values in enumerate(self.measured(slab)):
            leading = (sort_keys(values) >> 16) + (BINS >> 1)
            seen[index] += torch.bincount(leading, minlength=BINS).cpu()

    def finish(self, parts: Sequence[Tensor]) -> Tensor:
        return _added(parts)


@dataclass(frozen=True)
class TrailingBits:
    """Per member and bin, how many values of the bin end with each pattern of 16 bits."""

    bins: tuple[tuple[int, ...], ...]
    measured: Measured
    elementwise: bool = True

    def begin(self, count: int) -> Tensor:
        return torch.zeros(count, len(self.bins[0]), BINS, dtype=torch.int64)

    def observe(self, seen: Tensor, slab: Slab) -> None:
        for index, values in enumerate(self.measured(slab)):
            keys = sort_keys(values)
            leading = (keys >> 16) + (BINS >> 1)
            for place, wanted in enumerate(self.bins[index]):
                inside = keys[leading == wanted] & (BINS - 1)
                seen[index, place] += torch.bincount(inside, minlength=BINS).cpu()

    def finish(self, parts: Sequence[Tensor]) -> Tensor:
        return _added(parts)


def _added(parts: Sequence[Tensor]) -> Tensor:
    # Into the first: with many members and threads these are the largest memory of a walk.
    total = parts[0]
    for part in parts[1:]:
        total += part
    return total


Selection = Generator[Pass, Tensor, list[list[float]]]


def order_statistics(measured: Measured, ranks: Ranks, *, elementwise: bool = True) -> Selection:
    """The stages that find, for each member, the values of the wanted ranks.

    Args:
        measured: what is ranked.
        ranks: which are wanted.
        elementwise: whether it may be measured in stretches.
    """
    leading = yield LeadingBits(measured, elementwise)
    wanted = torch.tensor(list(ranks(int(leading[0].sum()))))
    places, rests = [], []
    # The first alone, where one was for all; row by row, as the table may be a large one.
    for row in [row for row in leading if row.any()] or leading:
        below = row.cumsum(dim=0)
        bins = torch.searchsorted(below, wanted)
        rests.append((wanted - torch.where(bins > 0, below[(bins - 1).clamp(min=0)], 0)).tolist())
        places.append(tuple(bins.tolist()))
    del leading, row  # while the next tables are filled
    trailing = yield TrailingBits(tuple(places), measured, elementwise)
    return [
        [
            _value(((place - (BINS >> 1)) << 16) | int(torch.searchsorted(count.cumsum(0), rest)))
            for count, rest, place in zip(counts, own, bins, strict=True)
        ]
        for counts, own, bins in zip(trailing, rests, places, strict=False)
    ]


def _value(key: int) -> float:
    bits = torch.tensor(key, dtype=torch.int32)
    bits = bits ^ ((bits >> 31) & _MAGNITUDE)
    return float(bits.view(torch.float32))


def kth_smallest(values: Tensor, rank: int) -> Tensor:
    """The value of a rank (1 is the smallest) in one tensor of fp32, without sorting it."""
    keys = sort_keys(values)
    leading = (keys >> 16) + (BINS >> 1)
    below = torch.bincount(leading, minlength=BINS).cumsum(dim=0)
    place = int(torch.searchsorted(below, rank))
    rest = rank - (int(below[place - 1]) if place else 0)
    return values.reshape(-1)[leading == place].kthvalue(rest).values


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
