"""The rule of plan.md: what the differences of a claim say together.

A quantity is a row of numbers: its value over all images and seeds, its value for each seed, and
its value in every resample of images and seeds together. What is computed from several quantities,
number by number, is again one; so ratios and rank correlations need nothing of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from searches import SEEDS

from stockpot.results.contrast import Contrast, Verdict, every_of, verdict

Quantity = NDArray[np.float64]
ONE, DRAWN = 1, 1 + len(SEEDS)
"""Where the seeds' own values begin, and where the resamples do."""


class Part(NamedTuple):
    """One difference, less its margin."""

    data: str
    label: str
    values: Quantity

    def contrast(self, confidence: float = 0.95) -> Contrast:
        outside = 50 * (1 - confidence)
        low, high = np.percentile(self.values[DRAWN:], [outside, 100 - outside])
        return Contrast(float(self.values[0]), float(low), float(high))

    def said(self, confidence: float = 0.95) -> Verdict:
        """By the interval; and every seed must be on that side."""
        found = self.contrast(confidence)
        told = verdict(found.low, found.high)
        sides = [(value > 0) == (told == "held") for value in self.values[ONE:DRAWN]]
        return told if told == "not told apart" or all(sides) else "not told apart"


class Finding(NamedTuple):
    """A claim with all of its differences."""

    claim: str
    parts: tuple[Part, ...]

    @property
    def verdict(self) -> Verdict:
        """All must hold at 95 % each; one does not at 95 % for all of them together."""
        together = [part.said(1 - 0.05 / len(self.parts)) for part in self.parts]
        return every_of(together, [part.said() for part in self.parts])

    @property
    def worst(self) -> Part:
        """The difference that lies lowest."""
        return min(self.parts, key=lambda part: float(part.values[0]))

    @property
    def data(self) -> list[str]:
        return list(dict.fromkeys(part.data for part in self.parts))


def correlation(first: Sequence[Quantity], second: Sequence[Quantity]) -> Quantity:
    """Spearman's, over kinds, number by number."""
    ranks = [rankdata(np.array(side), axis=0) for side in (first, second)]
    one, two = (each - each.mean(axis=0) for each in ranks)
    with np.errstate(invalid="ignore"):
        found = (one * two).sum(axis=0) / np.sqrt((one**2).sum(axis=0) * (two**2).sum(axis=0))
    return np.nan_to_num(found)  # a ranking in which all are equal says nothing
