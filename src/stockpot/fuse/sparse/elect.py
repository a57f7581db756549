"""Elect a sign for every weight and merge only the changes that have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from stockpot.fuse.kinds import Slab
from stockpot.fuse.sparse.select import Measured
from stockpot.fuse.sparse.trim import add_up, trim, weighed

Reduce = Literal["mean", "sum", "max"]


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
        trimmed = [
            trim(change, limit)
            for change, limit in zip(self.changes(slab), self.limits, strict=True)
        ]
        total = add_up(weighed(trimmed, self.weights))
        seen[0] += float(total.sign_().sum(dtype=torch.float64))

    def finish(self, parts: Sequence[list[float]]) -> float:
        total = sum(part[0] for part in parts)
        return float((total > 0) - (total < 0))


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
        rising = add_up([up.sign_().mul_(share) for up, share in zip(ups, shares, strict=True)])
        falling = add_up(
            [low.sign_().mul_(-share) for low, share in zip(downs, shares, strict=True)]
        )
        divisor = torch.where(positive, rising, falling)
        divisor[divisor == 0] = 1
        merged /= divisor
    return merged
