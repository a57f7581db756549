"""How much a choice is worth: the bootstrap over the selection, on validation images alone.

The best of many trials looks better on the images that chose it than it is. Images are drawn with
replacement; the trial that is best on those drawn is chosen, and scored on the images that were
not. The mean over draws is what this way of choosing gives, and its spread holds the luck of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stockpot.results.resamples import Groups, image_counts

RESAMPLES = 1000


class Selection(NamedTuple):
    """What choosing gives."""

    value: float
    low: float
    high: float
    share: float
    """Of the draws that choose the same trial."""
    optimism: float
    """How much better the chosen one looks on the images that chose it."""


def selection(
    tasks: Sequence[NDArray[np.bool_]],
    *,
    worst: bool = False,
    groups: Sequence[Groups | None] = (),
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Selection:
    """Bootstrap the choice of the best of several trials.

    Args:
        tasks: for each task, trials x images.
        worst: the worst task counts; else the mean of all.
        groups: for each task, which images belong together.
        seed: of the draws.
        resamples: how many.
    """

    def combined(means: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        stacked = np.stack(means)
        found: NDArray[np.float64] = stacked.min(axis=0) if worst else stacked.mean(axis=0)
        return found

    inside, outside = [], []
    for number, flags in enumerate(tasks):
        own = groups[number] if groups else None
        drawn, left = [], []
        for counts in image_counts(
            flags.shape[1], seed=seed + number, resamples=resamples, groups=own
        ):
            often = counts.astype(np.float64)
            drawn.append(often @ flags.T / often.sum(axis=1, keepdims=True))
            never = (counts == 0).astype(np.float64)
            left.append(never @ flags.T / np.maximum(never.sum(axis=1, keepdims=True), 1))
        inside.append(np.concatenate(drawn))
        outside.append(np.concatenate(left))
    chosen = combined(inside).argmax(axis=1)
    scored = combined(outside)[np.arange(resamples), chosen]
    whole = combined([flags.mean(axis=1) for flags in tasks])
    best = int(whole.argmax())
    low, high = np.quantile(scored, [0.025, 0.975])
    value = float(scored.mean())
    return Selection(
        value, float(low), float(high), float((chosen == best).mean()), float(whole[best]) - value
    )


def front_of(values: NDArray[np.float64]) -> list[int]:
    """The rows that no other row beats: as good everywhere and better somewhere. Higher is better.

    Of rows that are equal, all are in the front or none.
    """
    found = []
    for index, row in enumerate(values):
        beaten = (values >= row).all(axis=1) & (values > row).any(axis=1)
        if not beaten.any():
            found.append(index)
    return found


def balanced(values: NDArray[np.float64]) -> int:
    """The row whose worst objective is best, each on a scale from the least to the most found."""
    low, high = values.min(axis=0), values.max(axis=0)
    scaled = (values - low) / np.where(high > low, high - low, 1.0)
    worst, total = scaled.min(axis=1), scaled.sum(axis=1)
    return int(np.lexsort((-total, -worst))[0])
