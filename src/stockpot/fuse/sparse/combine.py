"""How the members' changes combine: sums in a fixed order, and an election of signs.

`torch.stack(tensors).sum(dim=0)` adds rows up in blocks of sixteen and then the blocks. Adding in
the same order gives the same bits without holding all members at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from stockpot.fuse.fuser import Slab
from stockpot.fuse.sparse.select import Measured, trim

Reduce = Literal["mean", "sum", "max"]
_BLOCK = 16


class RunningSum:
    """The sum of tensors that are added one by one."""

    def __init__(self) -> None:
        self._block: Tensor | None = None
        self._blocks: Tensor | None = None
        self._count = 0

    def add(self, values: Tensor) -> None:
        """Add a tensor; it is not kept."""
        self._block = values.clone() if self._block is None else self._block.add_(values)
        self._count += 1
        if self._count % _BLOCK == 0:
            done = self._block
            self._blocks = done if self._blocks is None else self._blocks.add_(done)
            self._block = None

    @property
    def value(self) -> Tensor:
        """The sum so far."""
        if self._block is None:
            if self._blocks is None:
                raise ValueError("nothing has been added")
            return self._blocks
        return self._block if self._blocks is None else self._block + self._blocks


def add_up(tensors: Iterable[Tensor]) -> Tensor:
    """The sum of some tensors."""
    total = RunningSum()
    for values in tensors:
        total.add(values)
    return total.value


def weighed(changes: Iterable[Tensor], weights: Sequence[float] | None) -> Iterable[Tensor]:
    """The changes, each multiplied by its member's weight."""
    if weights is None:
        return changes
    return (change * weight for change, weight in zip(changes, weights, strict=True))


@dataclass(frozen=True)
class SignSum:
    """The sign that prevails among the elected signs of all weights: -1, 0 or 1."""

    changes: Measured
    limits: tuple[float, ...]
    weights: tuple[float, ...] | None
    elementwise: bool = True

    def begin(self, count: int) -> list[float]:
        return [0.0]

    def observe(self, seen: list[float], slab: Slab) -> None:
        pairs = zip(self.changes(slab), self.limits, strict=True)
        total = add_up(weighed((trim(change, limit) for change, limit in pairs), self.weights))
        seen[0] += float(total.sign_().sum(dtype=torch.float64))

    def finish(self, parts: Sequence[list[float]]) -> float:
        total = sum(part[0] for part in parts)
        return float((total > 0) - (total < 0))


def disjoint(
    changes: Iterable[Tensor],
    weights: Sequence[float] | None,
    reduce: Reduce,
    majority: float,
) -> Tensor:
    """Combine, weight by weight, the changes that have the elected sign.

    Args:
        changes: the trimmed changes of all members, one after the other.
        weights: one number per member, or none.
        reduce: mean, sum or max.
        majority: the sign of a weight whose changes cancel exactly.
    """
    total, up, down = RunningSum(), RunningSum(), RunningSum()
    rising, falling = RunningSum(), RunningSum()
    highest = lowest = None
    for index, change in enumerate(weighed(changes, weights)):
        total.add(change)
        rise, fall = change.clamp(min=0), change.clamp(max=0)
        if reduce == "max":
            highest = rise if highest is None else torch.maximum(highest, rise)
            lowest = fall if lowest is None else torch.minimum(lowest, fall)
            continue
        up.add(rise)
        down.add(fall)
        if reduce == "mean":
            share = 1.0 if weights is None else weights[index]
            rising.add(rise.sign_().mul_(share))
            falling.add(fall.sign_().mul_(-share))
    positive = total.value >= 0 if majority > 0 else total.value > 0
    if highest is not None and lowest is not None:
        largest = torch.where(positive, highest, lowest)
        return largest if majority else largest * (total.value != 0)
    merged = torch.where(positive, up.value, down.value)
    if reduce == "mean":
        divisor = torch.where(positive, rising.value, falling.value)
        divisor[divisor == 0] = 1
        merged /= divisor
    return merged
