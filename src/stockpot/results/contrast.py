"""Contrasts with a verdict: what an interval allows to say about a claim.

A claim says that some difference is larger than a margin, mostly 0. It `held` when the whole
interval lies above the margin, it `did not hold` when the whole interval lies below, and otherwise
the data does `not` tell the two `apart`. A negative margin asks whether something is no worse.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stockpot.errors import BadDataError
from stockpot.results.groups import Answers, Draws, resampled
from stockpot.results.statistics import Groups, paired_bootstrap

Verdict = Literal["held", "did not hold", "not told apart"]


def verdict(low: float, high: float, margin: float = 0.0) -> Verdict:
    """What the interval of a difference says about the claim that it exceeds the margin."""
    if low > margin:
        return "held"
    return "did not hold" if high < margin else "not told apart"


class Contrast(NamedTuple):
    """A difference of shares with its 95 % interval; as text it stands in points."""

    value: float
    low: float
    high: float

    @property
    def verdict(self) -> Verdict:
        """What the interval allows to say about `value > 0`."""
        return verdict(self.low, self.high)

    def __str__(self) -> str:
        return f"{100 * self.value:+.1f} [{100 * self.low:+.1f}, {100 * self.high:+.1f}]"


def paired(
    first: ArrayLike, second: ArrayLike, *, seed: int = 0, groups: Groups | None = None
) -> Contrast:
    """The first less the second on the same images (drawn by group, where there are groups)."""
    found = paired_bootstrap(first, second, seed=seed, groups=groups)
    return Contrast(found.difference, found.low, found.high)


def mean_contrast(parts: Sequence[Contrast]) -> Contrast:
    """The mean of contrasts on independent images: their half-widths add in squares."""
    value = sum(part.value for part in parts) / len(parts)
    down = math.hypot(*(part.value - part.low for part in parts)) / len(parts)
    up = math.hypot(*(part.high - part.value for part in parts)) / len(parts)
    return Contrast(value, value - down, value + up)


def minus(first: Sequence[str] | str, second: Sequence[str] | str) -> dict[str, float]:
    """Factors of the mean of the first models minus the mean of the second."""
    factors: dict[str, float] = {}
    for names, sign in ((first, 1), (second, -1)):
        chosen = [names] if isinstance(names, str) else names
        for name in chosen:
            factors[name] = factors.get(name, 0) + sign / len(chosen)
    return factors


class Contrasts:
    """Sums of several models' means over datasets and runs, each times a factor.

    All models of a contrast meet the same images and runs in every resample, so that it is paired.
    """

    def __init__(self, found: Mapping[str, Mapping[str, Answers]], prefix: str = "") -> None:
        """Take answers by model and run, of models whose names begin so; the prefix falls away."""
        self._runs = {
            name.removeprefix(prefix): list(runs.values())
            for name, runs in found.items()
            if name.startswith(prefix)
        }
        self._draws: Draws = {}

    def of(self, factors: Mapping[str, float], data: Sequence[str]) -> Contrast | None:
        """The contrast over these datasets; None where a model was not scored on all of them."""
        value, drawn = 0.0, np.zeros(1)
        for name, factor in factors.items():
            runs = [run for run in self._runs.get(name, ()) if set(data) <= set(run)]
            if not runs:
                return None
            value += factor * float(np.mean([[run[key].mean() for key in data] for run in runs]))
            drawn = drawn + factor * resampled(runs, data, self._draws)
        low, high = np.percentile(drawn, [2.5, 97.5])
        return Contrast(value, float(low), float(high))


def halves(n: int, seed: int = 0) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Images to choose on, and images to judge on."""
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[: n // 2]), np.sort(order[n // 2 :])


class Chosen(NamedTuple):
    """A candidate that was chosen on one half of the images, judged on the other."""

    best: int
    gain: Contrast
    """Over the reference, on images that had no say in the choice."""
    n: int


def choose_then_judge(
    candidates: ArrayLike, reference: ArrayLike, *, seed: int = 0, groups: Groups | None = None
) -> Chosen:
    """Take the best of many on one half of the images, and compare it on the other half.

    The best of many looks better than it is on the images that chose it; on others it does not.

    Args:
        candidates: candidates x images, whether each is right (or a share).
        reference: the same of what they should beat.
        seed: of the halves and of the interval.
        groups: a label per image; a group stays on one side.
    """
    table, other = np.asarray(candidates, np.float64), np.asarray(reference, np.float64)
    if table.ndim != 2 or table.shape[1:] != other.shape:
        raise BadDataError(f"expected candidates x {other.size} images, got {table.shape}.")
    labels = np.arange(other.size) if groups is None else np.unique(groups, return_inverse=True)[1]
    chosen = np.isin(labels, halves(int(labels.max()) + 1, seed)[0])
    best = int(table[:, chosen].mean(axis=1).argmax())
    held = None if groups is None else labels[~chosen]
    gain = paired(table[best, ~chosen], other[~chosen], seed=seed, groups=held)
    return Chosen(best, gain, int((~chosen).sum()))
