"""Which weights of a tensor vary most over the members, found without holding the tensor.

The limit is found by counting, as thresholds of whole models are (`select.py`). Where equal
variances lie on both sides of it, the first in the tensor are taken; in a tensor of one stretch,
torch's `topk` decides, as it does in mergekit.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from stockpot.fuse.fuser import Slab
from stockpot.fuse.sparse.select import BINS, sort_keys

_LARGEST = (1 << 31) - 1
"""A sort key that no number is above."""
_COLUMNS = 1 << 15


@dataclass(frozen=True)
class Varying:
    """The weights with a variance above a limit, and those that reach it up to some place."""

    limit: int
    """As a sort key."""
    last: int
    """The place of the last weight that is chosen for just reaching the limit."""

    def __call__(self, part: Slab) -> Tensor:
        """Where a stretch holds chosen weights."""
        keys = _variance_keys(part)
        places = torch.arange(part.start, part.start + len(keys), device=keys.device)
        return (keys > self.limit) | ((keys == self.limit) & (places <= self.last))


@dataclass(frozen=True)
class Chosen:
    """Weights of a tensor of one stretch."""

    mask: Tensor

    def __call__(self, part: Slab) -> Tensor:
        """Where they are; there is one stretch."""
        return self.mask


def most_varying(slab: Slab, density: float) -> Varying | Chosen:
    """The share of the varying weights of a whole tensor that varies most."""
    parts = list(slab.stretches())
    if len(parts) == 1:
        found = variance(parts[0])
        mask = torch.zeros_like(found)
        kept = int(torch.count_nonzero(found) * density)
        mask[found.topk(kept).indices] = 1
        return Chosen(mask > 0)
    leading = torch.zeros(BINS, dtype=torch.int64)
    nonzero = 0
    for keys in map(_variance_keys, parts):
        leading += torch.bincount((keys >> 16) + (BINS >> 1), minlength=BINS).cpu()
        nonzero += int(torch.count_nonzero(keys))
    kept = int(nonzero * density)
    if not kept:
        return Varying(_LARGEST, -1)
    bin_, above = _from_the_top(leading, kept)
    first = bin_ - (BINS >> 1)
    trailing = torch.zeros(BINS, dtype=torch.int64)
    for keys in map(_variance_keys, parts):
        inside = keys[(keys >> 16) == first] & (BINS - 1)
        trailing += torch.bincount(inside, minlength=BINS).cpu()
    rest, higher = _from_the_top(trailing, kept - above)
    limit, ties = (first << 16) | rest, kept - above - higher
    whole = ties == int(trailing[rest])
    return Varying(limit, slab.info.numel if whole else _place(parts, limit, ties))


def _from_the_top(counts: Tensor, rank: int) -> tuple[int, int]:
    """The bin of a rank, 1 being the largest, and how many values are in higher bins."""
    reached = counts.flip(0).cumsum(dim=0)
    number = int(torch.searchsorted(reached, rank))
    return len(counts) - 1 - number, int(reached[number - 1]) if number else 0


def _place(parts: list[Slab], limit: int, ties: int) -> int:
    """Where the weight lies that reaches the limit as the one of this number."""
    for part in parts:
        places = (_variance_keys(part) == limit).nonzero()[:, 0]
        if len(places) >= ties:
            return part.start + int(places[ties - 1])
        ties -= len(places)
    raise LookupError("fewer weights reach the limit than were counted")


def _variance_keys(part: Slab) -> Tensor:
    return sort_keys(variance(part))


def variance(part: Slab) -> Tensor:
    """Of every weight of a stretch over the members, flat."""
    found = [
        variance_of(each.stacked_deltas().reshape(part.count, -1))
        for each in part.stretches(together=True)
    ]
    return found[0] if len(found) == 1 else torch.cat(found)


def variance_of(table: Tensor) -> Tensor:
    """Of each column, with the bits of `table.var(dim=0, unbiased=False)`.

    torch goes down every column by itself. The same steps (Welford's, in fp64) for many columns at
    once, few enough to stay in a cache, are five to fifteen times as fast on a CPU. Of one column
    alone torch adds up parts of it in another order.
    """
    columns = table.shape[1]
    if table.device.type != "cpu" or columns < 2:
        return table.var(dim=0, unbiased=False)
    found = table.new_empty(columns)
    for start in range(0, columns, _COLUMNS):
        part = table[:, start : start + _COLUMNS]
        mean = part[0].to(torch.float64, copy=True)
        squares = (mean - mean).mul_(mean)  # nothing, and no number where there is none
        for count in range(1, len(part)):
            values = part[count].to(torch.float64, copy=True)
            off = values - mean
            mean += off / (count + 1)
            # Not as one operation, which would round once where torch rounds twice.
            squares += off.mul_(values.sub_(mean))
        found[start : start + _COLUMNS] = squares.div_(len(part))
    return found
