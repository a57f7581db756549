"""In which order a stream shows its pictures, and where a model begins anew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

StreamName = Literal["single", "continual", "mixed"]
"""`single`: every corruption is a stream of its own. `continual`: one corruption after another,
and the model is not told. `mixed`: all of them shuffled together."""
OrderName = Literal["shuffled", "sorted", "dirichlet"]
"""Of labels: by chance, class by class, or in runs of classes of random length."""

Numbers = NDArray[np.int64]


class Piece(NamedTuple):
    """Pictures that are shown without the model beginning anew in between."""

    rows: Numbers
    kinds: Numbers
    """The number of the corruption of each."""
    fresh: bool
    """Whether the model begins anew before them."""

    def batches(self, size: int) -> Iterator[tuple[Numbers, Numbers]]:
        """Rows and corruptions, `size` at a time."""
        for start in range(0, len(self.rows), size):
            yield self.rows[start : start + size], self.kinds[start : start + size]


def pieces(
    stream: StreamName,
    order: OrderName,
    labels: Numbers,
    kinds: int,
    seed: int,
    concentration: float,
) -> list[Piece]:
    """A stream over every picture under every corruption.

    Args:
        stream: how corruptions follow one another.
        order: how labels follow one another.
        labels: of every row.
        kinds: how many corruptions there are.
        seed: of everything random; the order of rows differs between corruptions.
        concentration: of `dirichlet`; the smaller, the longer the runs of one class.
    """
    generator = np.random.default_rng(seed)
    count = len(labels)
    if stream == "mixed":
        rows, own = np.tile(np.arange(count), kinds), np.repeat(np.arange(kinds), count)
        places = ordered(labels[rows], order, generator, concentration)
        return [Piece(rows[places], own[places], True)]
    return [
        Piece(
            ordered(labels, order, generator, concentration),
            np.full(count, kind, dtype=np.int64),
            stream == "single" or kind == 0,
        )
        for kind in range(kinds)
    ]


def ordered(
    labels: Numbers, order: OrderName, generator: np.random.Generator, concentration: float
) -> Numbers:
    """All places in an order of their labels.

    `dirichlet` is the rule of NOTE (arXiv:2208.05117): there are as many slots as classes, each
    class spreads over the slots by shares drawn from a Dirichlet distribution, and within a slot
    classes come in random order, one after another.
    """
    chance = generator.permutation(len(labels))
    if order == "shuffled":
        return chance
    if order == "sorted":
        return chance[np.argsort(labels[chance], kind="stable")]
    classes = np.unique(labels)
    slots: list[list[Numbers]] = [[] for _ in classes]
    for each in classes:
        members = chance[labels[chance] == each]
        shares = generator.dirichlet(np.full(len(classes), concentration))
        cuts = (np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
        for slot, part in zip(slots, np.split(members, cuts), strict=True):
            slot.append(part)
    return np.concatenate(
        [slot[place] for slot in slots for place in generator.permutation(len(slot))]
    )
