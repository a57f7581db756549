"""Which images a method may see, and which it is scored on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from stockpot.datasets.dataset import STRATA, Dataset
from stockpot.errors import BadParameterError


class Drawn(NamedTuple):
    """Row numbers in rising order."""

    rows: Tensor
    """To choose on."""
    others: Tensor
    """To score on; none shows an image that the choice has seen, not even another copy of it."""


def draw(data: Dataset, shots: int, seed: int) -> Drawn:
    """Draw `shots` images with a seed.

    Where pictures were made from others (all of ImageNet-C), every way of making them gives as many
    shots as any other, give or take one; no original gives two; and all pictures of the originals
    that were drawn stay out of what is scored.
    """
    groups = data.groups
    limit = len(data) if groups is None else len(set(groups))
    if not 0 <= shots < limit:
        what = "images" if groups is None else "originals"
        raise BadParameterError(
            f"shots: expected 0 to {limit - 1} of the {limit} {what}, so that some are held out, "
            f"got {shots}."
        )
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(data), generator=generator)
    if groups is None:
        return Drawn(order[:shots].sort().values, order[shots:].sort().values)
    chosen = _stratified(_strata(data), groups, order.tolist(), shots)
    seen = {groups[row] for row in chosen}
    others = [row for row, group in enumerate(groups) if group not in seen]
    return Drawn(torch.tensor(sorted(chosen), dtype=torch.long), torch.tensor(others))


def _strata(data: Dataset) -> list[tuple[str, ...]]:
    kept = [data.columns[name] for name in STRATA if name in data.columns]
    return list(zip(*kept, strict=True)) if kept else [()] * len(data)


def _stratified(
    strata: Sequence[tuple[str, ...]], groups: Sequence[str], order: Sequence[int], shots: int
) -> list[int]:
    """Rounds over the strata, each giving its next picture of an original not drawn yet."""
    waiting: dict[tuple[str, ...], list[int]] = {}
    for row in reversed(order):  # popped from the end: in drawn order
        waiting.setdefault(strata[row], []).append(row)
    # In drawn order too: a last, incomplete round must not always begin with the same corruption.
    ring = list(dict.fromkeys(strata[row] for row in order))
    chosen: list[int] = []
    seen: set[str] = set()
    while len(chosen) < shots and ring:
        for stratum in list(ring):
            rows = waiting[stratum]
            while rows and groups[rows[-1]] in seen:
                rows.pop()
            if not rows:
                ring.remove(stratum)
            elif len(chosen) < shots:
                chosen.append(rows.pop())
                seen.add(groups[chosen[-1]])
    return chosen
