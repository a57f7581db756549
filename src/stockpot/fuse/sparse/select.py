"""The exact k-th smallest magnitude among all changes of a model, in two streamed passes.

The bits of a non-negative float, read as an integer, order as the float does. The first pass
counts the leading bits; those tell in which bin the wanted value lies. The second counts the
remaining bits inside that bin. Nothing is sorted or kept, whatever the size of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stockpot.fuse.kinds import Pass, Slab

_LEADING = 16
_TRAILING = 15
_MAGNITUDE = 0x7FFFFFFF

Change = Callable[[Slab, int], Tensor]
"""What is measured of a member's slab; its plain change unless a method alters it first."""


def plain_change(slab: Slab, index: int) -> Tensor:
    """The member's values less the base's."""
    return slab.delta(index)


Selection = Generator[Pass, Tensor, list[float]]


def _bits(change: Tensor) -> Tensor:
    return change.float().reshape(-1).view(torch.int32) & _MAGNITUDE


@dataclass(frozen=True)
class LeadingBits:
    """Per member, how many magnitudes begin with each pattern of the first 16 bits."""

    change: Change = plain_change
    elementwise: bool = True

    def begin(self, count: int) -> Tensor:
        return torch.zeros(count, 1 << _LEADING, dtype=torch.int64)

    def observe(self, seen: Tensor, slab: Slab) -> None:
        for index in range(slab.count):
            leading = _bits(self.change(slab, index)) >> _TRAILING
            seen[index] += torch.bincount(leading, minlength=1 << _LEADING).cpu()

    def finish(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(parts)).sum(dim=0)


@dataclass(frozen=True)
class TrailingBits:
    """Per member, how many magnitudes of one bin end with each pattern of the last 15 bits."""

    bins: tuple[int, ...]
    change: Change = plain_change
    elementwise: bool = True

    def begin(self, count: int) -> Tensor:
        return torch.zeros(count, 1 << _TRAILING, dtype=torch.int64)

    def observe(self, seen: Tensor, slab: Slab) -> None:
        for index, wanted in enumerate(self.bins):
            bits = _bits(self.change(slab, index))
            inside = bits[(bits >> _TRAILING) == wanted] & ((1 << _TRAILING) - 1)
            seen[index] += torch.bincount(inside, minlength=1 << _TRAILING).cpu()

    def finish(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(parts)).sum(dim=0)


def kth_magnitudes(rank_of: Callable[[int], int], change: Change = plain_change) -> Selection:
    """The stages that find each member's k-th smallest magnitude, `k = rank_of(elements)`."""
    leading = yield LeadingBits(change)
    rank = rank_of(int(leading[0].sum()))
    below = leading.cumsum(dim=1)
    bins = [int(torch.searchsorted(row, rank)) for row in below]
    rest = [rank - (int(row[b - 1]) if b else 0) for row, b in zip(below, bins, strict=True)]
    trailing = yield TrailingBits(tuple(bins), change)
    values = []
    for row, wanted, b in zip(trailing.cumsum(dim=1), rest, bins, strict=True):
        pattern = (b << _TRAILING) | int(torch.searchsorted(row, wanted))
        values.append(float(torch.tensor(pattern, dtype=torch.int32).view(torch.float32)))
    return values
