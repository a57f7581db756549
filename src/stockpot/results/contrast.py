"""Contrasts with a verdict: what an interval allows to say about a claim.

A claim says that some difference is larger than a margin, mostly 0. It `held` when the whole
interval lies above the margin, it `did not hold` when the whole interval lies below, and otherwise
the data does `not` tell the two `apart`. A negative margin asks whether something is no worse.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stockpot.errors import BadDataError
from stockpot.results.groups import Answers, Draws, resampled
from stockpot.results.resamples import RESAMPLES, Groups
from stockpot.results.statistics import paired_bootstrap

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
    first: ArrayLike,
    second: ArrayLike,
    *,
    seed: int = 0,
    groups: Groups | None = None,
    confidence: float = 0.95,
) -> Contrast:
    """The first less the second on the same images (drawn by group, where there are groups)."""
    # The ends of a wide interval lie far out, where few resamples are.
    count = min(20_000, round(RESAMPLES * max(1.0, 0.05 / (1 - confidence))))
    found = paired_bootstrap(
        first, second, seed=seed, groups=groups, confidence=confidence, resamples=count
    )
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

    def of(
        self, factors: Mapping[str, float], data: Sequence[str], confidence: float = 0.95
    ) -> Contrast | None:
        """The contrast over these datasets; None where a model was not scored on all of them."""
        value, drawn = 0.0, np.zeros(1)
        for name, factor in factors.items():
            runs = [run for run in self._runs.get(name, ()) if set(data) <= set(run)]
            if not runs:
                return None
            value += factor * float(np.mean([[run[key].mean() for key in data] for run in runs]))
            drawn = drawn + factor * resampled(runs, data, self._draws)
        outside = round(50 * (1 - confidence), 9)
        low, high = np.percentile(drawn, [outside, 100 - outside])
        # Products in single precision end otherwise with other threads; a page must not.
        return Contrast(value, round(float(low), 5), round(float(high), 5))


Choice = TypeVar("Choice")


def level_with_best(tried: Mapping[Choice, ArrayLike]) -> list[Choice]:
    """What is not more than one standard error of the paired difference below the best.

    Among these a choice may be made by something else, such as the weakest or the cheapest.
    """
    found = {choice: np.asarray(answers, np.float64) for choice, answers in tried.items()}
    best = max(found.values(), key=np.mean)

    def is_near(answers: NDArray[np.float64]) -> bool:
        behind = best - answers
        return bool(behind.mean() <= behind.std() / np.sqrt(len(behind)))

    return [choice for choice, answers in found.items() if is_near(answers)]


def halves(n: int, seed: int = 0) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Images to choose on, and images to judge on."""
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[: n // 2]), np.sort(order[n // 2 :])


class Pair(NamedTuple):
    """Answers of two models to the same images, which had no say in choosing either."""

    first: NDArray[np.float64]
    second: NDArray[np.float64]
    groups: NDArray[np.intp] | None = None


class Chosen(NamedTuple):
    """A candidate that was chosen on one half of the images, judged on the other."""

    best: int
    other: int
    """The reference that was chosen on the same half, where there are several."""
    gain: Contrast
    """Over the reference, on images that had no say in the choice."""
    n: int
    held_out: Pair
    """What the gain comes from, for a claim about several of them."""


def choose_then_judge(
    candidates: ArrayLike, reference: ArrayLike, *, seed: int = 0, groups: Groups | None = None
) -> Chosen:
    """Take the best of many on one half of the images, and compare it on the other half.

    The best of many looks better than it is on the images that chose it; on others it does not.

    Args:
        candidates: candidates x images, whether each is right (or a share).
        reference: the same of what they should beat: one, or several of which the best is taken.
        seed: of the halves and of the interval.
        groups: a label per image; a group stays on one side.
    """
    table, others = np.asarray(candidates, np.float64), np.asarray(reference, np.float64)
    rivals = others[None] if others.ndim == 1 else others
    images = rivals.shape[1]
    if table.ndim != 2 or table.shape[1] != images:
        raise BadDataError(f"expected candidates x {images} images, got {table.shape}.")
    labels = np.arange(images) if groups is None else np.unique(groups, return_inverse=True)[1]
    chosen = np.isin(labels, halves(int(labels.max()) + 1, seed)[0])
    best, other = (_drawn_best(side[:, chosen].mean(axis=1), seed) for side in (table, rivals))
    held = None if groups is None else labels[~chosen]
    pair = Pair(table[best, ~chosen], rivals[other, ~chosen], held)
    gain = paired(pair.first, pair.second, seed=seed, groups=held)
    return Chosen(best, other, gain, int((~chosen).sum()), pair)


def _drawn_best(scores: NDArray[np.float64], seed: int) -> int:
    """The best; of equals one that is drawn, not the first."""
    return int(np.random.default_rng(seed).choice(np.flatnonzero(scores == scores.max())))


class Claim(NamedTuple):
    """What several differences say together."""

    verdict: Verdict
    parts: tuple[Contrast, ...]
    """With intervals of 95 % for all of them together (Bonferroni), not for each."""


def some_exceed(pairs: Sequence[Pair], margin: float = 0.0, *, seed: int = 0) -> Claim:
    """Is at least one of these differences larger than the margin?

    Of many differences that are none, the largest looks like one; so each interval is as wide as
    their number asks for.
    """
    parts = _together(pairs, seed)
    return Claim(some_of([verdict(part.low, part.high, margin) for part in parts]), parts)


def every_exceed(pairs: Sequence[Pair], margin: float = 0.0, *, seed: int = 0) -> Claim:
    """Is each of these differences larger than the margin?"""
    parts = _together(pairs, seed)
    each = [paired(p.first, p.second, seed=seed, groups=p.groups) for p in pairs]
    together, alone = (
        [verdict(part.low, part.high, margin) for part in found] for found in (parts, each)
    )
    return Claim(every_of(together, alone), parts)


def some_of(together: Sequence[Verdict]) -> Verdict:
    """At least one of several, by verdicts on intervals that are wide enough for all of them."""
    if "held" in together:
        return "held"
    below = all(said == "did not hold" for said in together)
    return "did not hold" if together and below else "not told apart"


def every_of(together: Sequence[Verdict], alone: Sequence[Verdict]) -> Verdict:
    """Each of several, by verdicts on intervals that are wide enough for all, and on single ones.

    That all show it chance works against, and for that 95 % for each are enough.
    """
    if "did not hold" in together:
        return "did not hold"
    shown = all(said == "held" for said in alone)
    return "held" if alone and shown else "not told apart"


def _together(pairs: Sequence[Pair], seed: int) -> tuple[Contrast, ...]:
    confidence = 1 - 0.05 / max(len(pairs), 1)
    return tuple(
        paired(p.first, p.second, seed=seed, groups=p.groups, confidence=confidence) for p in pairs
    )
