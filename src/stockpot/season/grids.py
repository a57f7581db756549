"""Grids of mixing weights, counted in whole steps so that no point is lost to rounding."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import torch
from torch import Tensor

from stockpot.errors import BadParameterError

LARGEST = 100_000


def affine_grid(members: int, *, low: float, high: float, step: float) -> Tensor:
    """All weights from `low` to `high` by `step` that sum to 1, one row per soup."""
    size = _exact(step)
    if size <= 0:
        raise BadParameterError(f"step: expected a number above 0, got {step}.")
    units = [_exact(value) / size for value in (low, high, 1)]
    if any(unit.denominator != 1 for unit in units):
        raise BadParameterError(
            f"expected low, high and 1 to be multiples of the step {step}, got {low} and {high}."
        )
    bottom, top, total = (int(unit) for unit in units)
    rows = []
    for row in _compositions(members, total, bottom, top):
        rows.append(row)
        if len(rows) > LARGEST:
            raise BadParameterError(
                f"the grid has more than {LARGEST} soups.", hint="Take a larger step."
            )
    if not rows:
        raise BadParameterError(
            f"no weights of {members} members from {low} to {high} by {step} sum to 1."
        )
    # One division of whole numbers: a weight of 1 is exactly 1.
    return torch.tensor(rows, dtype=torch.float64) * size.numerator / size.denominator


def _exact(value: float) -> Fraction:
    return Fraction(str(value))


def _compositions(parts: int, total: int, low: int, high: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        if low <= total <= high:
            yield (total,)
        return
    for first in range(low, high + 1):
        rest = total - first
        if (parts - 1) * low <= rest <= (parts - 1) * high:
            for others in _compositions(parts - 1, rest, low, high):
                yield (first, *others)
