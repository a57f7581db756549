"""The expected calibration error, and an interval that knows its bias.

A mean of absolute gaps is never below zero: of a perfectly calibrated model it is what chance
makes of 0, and resampling the images adds that chance a second time. So the interval asks the
question the other way round: for which true errors would the observed one be no surprise? The true
gaps are those observed, all moved towards zero (or away from it) by one number of their own
standard errors; bins are drawn anew under each such truth, and the truths of which neither tail
beyond the observed value is below 2.5 % make the interval. The observed value belongs to it even
where it is the upper end: chance alone lifts it there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stockpot.results.statistics import Groups, Interval, group_sums

_DRAWS = 1000
_HALVINGS = 9
_FARTHEST = 8.0
"""No truth is looked for beyond so many standard errors."""


class _Bins(NamedTuple):
    """What lies in each confidence bin that is not empty."""

    share: NDArray[np.float64]
    confidence: NDArray[np.float64]
    accuracy: NDArray[np.float64]

    def error(self, accuracy: NDArray[np.float64]) -> float:
        """The calibration error were these the true accuracies."""
        return float((self.share * np.abs(self.confidence - accuracy)).sum())


def calibration_error(
    confidence: NDArray[np.float64], correct: NDArray[np.bool_], bins: int
) -> float:
    """Expected calibration error: mean gap of confidence and accuracy over confidence bins."""
    which = _places(confidence, bins)
    gaps = np.bincount(which, weights=confidence - correct, minlength=bins)
    return float(np.abs(gaps).sum() / max(len(confidence), 1))


def calibration_interval(
    confidence: NDArray[np.float64],
    correct: NDArray[np.bool_],
    bins: int,
    *,
    seed: int = 0,
    groups: Groups | None = None,
) -> Interval:
    """The true errors under which the observed one is no surprise at 95 %.

    Args:
        confidence: of each answer.
        correct: whether it was right.
        bins: how many of equal width there are.
        seed: of the draws.
        groups: which images belong together; they count as fewer independent ones.
    """
    method = "bin-inversion-95"
    n = len(confidence)
    if n == 0:
        return Interval(0.0, 1.0, method)
    observed = calibration_error(confidence, correct, bins)
    found = _filled(confidence, correct, bins)
    count = max(1, round(n / _design_effect(confidence - correct, groups)))

    generator = np.random.default_rng(seed)
    sizes = generator.multinomial(count, found.share / found.share.sum(), size=_DRAWS)

    def tails(steps: float) -> tuple[float, float]:
        drawn = _drawn(found, _moved(found, count, steps), sizes, seed)
        # Few images give few values: one that equals the observed is no surprise on either side.
        near = np.isclose(drawn, observed, rtol=1e-9, atol=1e-12)
        return float((near | (drawn < observed)).mean()), float((near | (drawn > observed)).mean())

    def first_surprise(direction: float, tail: int) -> float:
        """The last truth in a direction that does not surprise, by halving."""
        if tails(direction * _FARTHEST)[tail] >= 0.025:
            return direction * _FARTHEST
        inside, outside = 0.0, _FARTHEST
        if tails(0.0)[tail] < 0.025:
            return 0.0
        for _ in range(_HALVINGS):
            middle = (inside + outside) / 2
            if tails(direction * middle)[tail] >= 0.025:
                inside = middle
            else:
                outside = middle
        return direction * inside

    low = found.error(_moved(found, count, first_surprise(-1.0, 1)))
    high = found.error(_moved(found, count, first_surprise(1.0, 0)))
    return Interval(min(low, observed), max(high, observed), method)


def _filled(confidence: NDArray[np.float64], correct: NDArray[np.bool_], bins: int) -> _Bins:
    which = _places(confidence, bins)
    counts = np.bincount(which, minlength=bins)
    kept = counts > 0
    sizes = counts[kept].astype(np.float64)
    sums = np.bincount(which, weights=confidence, minlength=bins)[kept]
    right = np.bincount(which, weights=correct, minlength=bins)[kept]
    return _Bins(sizes / len(confidence), sums / sizes, right / sizes)


def _moved(found: _Bins, count: int, steps: float) -> NDArray[np.float64]:
    """True accuracies whose gaps are larger by so many standard errors (smaller, below zero)."""
    sizes = np.maximum(found.share * count, 1e-9)
    # The error of a share of 0 or 1 is not 0: two more images, one right and one wrong.
    smooth = (found.accuracy * sizes + 1) / (sizes + 2)
    errors = np.sqrt(smooth * (1 - smooth) / (sizes + 2))
    gaps = found.confidence - found.accuracy
    size = np.maximum(np.abs(gaps) + steps * errors, 0.0)
    moved: NDArray[np.float64] = np.clip(found.confidence - np.sign(gaps) * size, 0.0, 1.0)
    return moved


def _drawn(
    found: _Bins, accuracy: NDArray[np.float64], sizes: NDArray[np.int64], seed: int
) -> NDArray[np.float64]:
    """Calibration errors of images drawn anew with these true accuracies, so many in each bin."""
    right = np.random.default_rng(seed + 1).binomial(sizes, accuracy)
    gaps = np.abs(sizes * found.confidence - right).sum(axis=1)
    errors: NDArray[np.float64] = gaps / sizes.sum(axis=1)
    return errors


def _design_effect(gaps: NDArray[np.float64], groups: Groups | None) -> float:
    """By how much the variance of the mean gap grows because images belong together."""
    if groups is None or len(gaps) < 2:
        return 1.0
    table = group_sums((gaps - gaps.mean())[:, None], groups)
    alone, together = float(((gaps - gaps.mean()) ** 2).sum()), float((table[:, 0] ** 2).sum())
    return max(1.0, together / alone) if alone else 1.0


def _places(confidence: NDArray[np.float64], bins: int) -> NDArray[np.int64]:
    return np.minimum((confidence * bins).astype(np.int64), bins - 1)
