"""Which context each picture gets: the dial between a class and its surroundings.

Class number c has context number c for its partner. A picture shows the partner with probability
`correlation` and each other context with equal probability otherwise, so that 1 / contexts means
independence and 1 means that the context gives the class away.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stockpot.errors import BadParameterError

Shift = Literal["none", "shuffled", "reversed"]


def context_numbers(
    labels: NDArray[np.int64],
    contexts: int,
    correlation: float,
    shift: Shift,
    draws: NDArray[np.float64],
) -> NDArray[np.int64]:
    """The context of each picture.

    Args:
        labels: its class.
        contexts: how many contexts there are; class c has context c for its partner.
        correlation: the probability of the partner.
        shift: `none` keeps the partners, `shuffled` makes every context equally likely, `reversed`
            makes the next class's partner as likely as the own one was.
        draws: one uniform number per picture; the same draws give comparable pictures.
    """
    if not 0 <= correlation <= 1:
        raise BadParameterError(
            f"correlation: expected a probability from 0 to 1, got {correlation}."
        )
    if contexts < 2:
        raise BadParameterError(f"expected at least two classes and contexts, got {contexts}.")
    chance = 1 / contexts if shift == "shuffled" else correlation
    partner = (labels + 1) % contexts if shift == "reversed" else labels
    # One uniform number serves twice: below `chance` it chooses the partner, and what is above it,
    # stretched over the others, chooses among them.
    rest = np.clip((draws - chance) / max(1 - chance, 1e-12), 0, 1 - 1e-12)
    step = 1 + np.floor(rest * (contexts - 1)).astype(np.int64)
    other = (partner + step) % contexts
    return np.where(draws < chance, partner, other)


def draws_of(seed: int, purpose: str, count: int, columns: int) -> NDArray[Any]:
    """Uniform numbers by row; those of a row do not depend on how many rows follow."""
    key = [seed % 2**32, *purpose.encode()]
    return np.random.default_rng(key).random((count, columns))
