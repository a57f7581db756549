"""Differences over images and a few trainings, with a verdict that every training must share.

Images and seeds are drawn anew together. Two or three seeds drawn anew cannot show their spread, so
a verdict is given only where the difference of each single seed lies on its side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri, stdtrit

from stockpot.results.contrast import Contrast, Contrasts, Verdict, every_of, some_of, verdict
from stockpot.results.resamples import RESAMPLES, resampled_means

Side = Mapping[str, NDArray[Any]]
"""Answers by condition, an array of images each."""


class Difference(NamedTuple):
    """One less another: its interval, the one for all of several together, and each seed's."""

    alone: Contrast
    together: Contrast
    each: tuple[float, ...]

    def said(self, margin: float = 0.0, together: bool = False) -> Verdict:
        """By the interval; and every seed must be on that side."""
        found = self.together if together else self.alone
        told = verdict(found.low, found.high, margin)
        sides = [(value > margin) == (told == "held") for value in self.each]
        return told if told == "not told apart" or all(sides) else "not told apart"

    def said_alike(self, margin: float, together: bool = False) -> Verdict:
        """Whether it lies within the margin on both sides, by the interval and by every seed."""
        found = self.together if together else self.alone
        if max(-found.low, found.high, *map(abs, self.each)) < margin:
            return "held"
        above = min(found.low, *self.each) > margin
        below = max(found.high, *self.each) < -margin
        return "did not hold" if above or below else "not told apart"


class Drawn(NamedTuple):
    """A number, and what it is when images are drawn anew, in the same draws for all of them."""

    value: float
    draws: NDArray[np.float64]

    def __sub__(self, other: Drawn) -> Drawn:
        return Drawn(self.value - other.value, self.draws - other.draws)

    def interval(self, confidence: float = 0.95) -> Contrast:
        """The number with its interval."""
        tail = 50 * (1 - confidence)
        low, high = np.percentile(self.draws, [tail, 100 - tail])
        return Contrast(self.value, float(low), float(high))


def drawn_mean(values: ArrayLike, *, seed: int = 0, resamples: int = RESAMPLES) -> Drawn:
    """A mean over images; equal numbers of images are drawn alike, whatever their values."""
    column = np.asarray(values, np.float64)[:, None]
    draws = resampled_means(column, seed=seed, resamples=resamples)[:, 0]
    return Drawn(float(column.mean()), draws)


def over_draws(runs: Sequence[Drawn], of: int = 1, *, seed: int = 0) -> Difference:
    """The mean over seeds of a number that need be no mean over images, such as an AUROC.

    Args:
        runs: the number of each seed, all from the same draws of the same images.
        of: how many differences are judged together.
        seed: of the draws of seeds.
    """
    table = np.stack([run.draws for run in runs], axis=1)
    chosen = np.random.default_rng([seed, len(runs)]).integers(0, len(runs), size=table.shape)
    each = tuple(run.value for run in runs)
    mean = Drawn(float(np.mean(each)), np.take_along_axis(table, chosen, axis=1).mean(axis=1))
    return Difference(mean.interval(), mean.interval(1 - 0.05 / of), each)


def over_seeds(runs: Sequence[tuple[Side, Side]], of: int = 1) -> Difference:
    """The first less the second, a pair for each seed; conditions count equally.

    Args:
        runs: for each seed the answers of both, to the same images.
        of: how many differences are judged together.
    """
    sides = {
        name: {
            str(seed): {k: np.asarray(v, np.float32) for k, v in run[place].items()}
            for seed, run in enumerate(runs)
        }
        for place, name in enumerate(("first", "second"))
    }
    contrasts, data = Contrasts(sides), list(runs[0][0])
    factors = {"first": 1.0, "second": -1.0}
    alone = contrasts.of(factors, data)
    together = contrasts.of(factors, data, 1 - 0.05 / of)
    assert alone is not None
    assert together is not None
    each = [float(np.mean([one[k].mean() - two[k].mean() for k in data])) for one, two in runs]
    return Difference(alone, together, tuple(each))


def widened(found: Contrast, seeds: int, confidence: float = 0.95) -> Contrast:
    """An interval over images and so many seeds as wide as Student's t has it.

    Few seeds drawn anew show too little of their spread: it is smaller by the root of (n - 1) / n,
    and its quantiles are those of the normal distribution. From six seeds or so this does in place
    of the rule that every seed must share a verdict.
    """
    place = 0.5 + confidence / 2
    factor = stdtrit(seeds - 1, place) / ndtri(place) * math.sqrt(seeds / (seeds - 1))
    low, high = (found.value + factor * (end - found.value) for end in (found.low, found.high))
    return Contrast(found.value, float(low), float(high))


def several_said(found: Sequence[Difference], margin: float = 0.0, *, every: bool) -> Verdict:
    """Whether each of several differences, or at least one, exceeds the margin."""
    together = [one.said(margin, together=True) for one in found]
    alone = [one.said(margin) for one in found]
    return every_of(together, alone) if every else some_of(together)
