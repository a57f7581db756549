"""The expected calibration error, and an interval that knows its bias.

A mean of absolute gaps is never below zero: of a perfectly calibrated model it is what chance
makes of 0, and resampling the images adds that chance a second time. So the interval asks the
question the other way round: for which true errors would the observed one be no surprise?

Downwards the true error stays in the bins that show it best, and the others are calibrated, so that
chance may have made as much of the observed value as it can. Upwards all gaps grow by one number of
their standard errors. Images are drawn anew under each such truth; where the observed value, or one
beyond it, has less than 2.5 %, the interval ends. The observed value belongs to it even where it is
the upper end: chance alone lifts it there.

Bins have equal width, or equal mass (the adaptive error): then each holds as many images, and equal
confidences stay together. The class-wise error asks the same of every probability, not only of the
highest (Kull et al., arXiv:1910.12656): bins of one class beside those of another, all in one sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stockpot.results.resamples import Groups, group_sums
from stockpot.results.statistics import Interval

_DRAWS, _FEWEST_DRAWS = 1000, 200
_DRAWN_BINS = 200_000
"""The error of very many bins (those of all classes) hardly moves, and fewer draws show it."""
_TAIL = 0.025
_HALVINGS = 9
_FARTHEST = 8.0
"""No truth is looked for beyond so many standard errors."""

Binning = Literal["width", "mass"]
"""Whether bins are equally wide, or hold equally many."""


class Bin(NamedTuple):
    """One bar of a reliability diagram."""

    low: float
    high: float
    """The confidences that it holds: the least and the largest of them."""
    n: int
    confidence: float
    accuracy: float


class _Bins(NamedTuple):
    """What lies in each confidence bin that is not empty."""

    share: NDArray[np.float64]
    confidence: NDArray[np.float64]
    accuracy: NDArray[np.float64]

    def error(self, accuracy: NDArray[np.float64]) -> float:
        """The calibration error were these the true accuracies."""
        return float((self.share * np.abs(self.confidence - accuracy)).sum())


def calibration_error(
    confidence: NDArray[np.float64],
    correct: NDArray[np.bool_],
    bins: int,
    binning: Binning = "width",
) -> float:
    """Expected calibration error: mean gap of confidence and accuracy over confidence bins."""
    return _error(_places(confidence, bins, binning), confidence, correct)


def classwise_error(
    probabilities: NDArray[np.float64], truth: NDArray[np.bool_], bins: int
) -> float:
    """The calibration error of each class's probability, averaged over the classes.

    Args:
        probabilities: images x classes.
        truth: of the same shape, whether the class is right.
        bins: equal-width bins of every class.
    """
    which = _class_places(probabilities, bins)
    return _error(which, probabilities.ravel(), truth.ravel())


def reliability(
    confidence: NDArray[np.float64],
    correct: NDArray[np.bool_],
    bins: int,
    binning: Binning = "width",
) -> list[Bin]:
    """The bins that hold something, from the least confidence to the largest."""
    which = _places(confidence, bins, binning)
    found = []
    for place in np.unique(which):
        own = confidence[which == place]
        right = float(correct[which == place].mean())
        found.append(Bin(float(own.min()), float(own.max()), own.size, float(own.mean()), right))
    return found


def calibration_interval(
    confidence: NDArray[np.float64],
    correct: NDArray[np.bool_],
    bins: int,
    *,
    binning: Binning = "width",
    seed: int = 0,
    groups: Groups | None = None,
) -> Interval:
    """The true errors under which the observed one is no surprise at 95 %.

    Args:
        confidence: of each answer.
        correct: whether it was right.
        bins: how many there are.
        binning: of equal width or of equal mass.
        seed: of the draws.
        groups: which images belong together; they count as fewer independent ones.
    """
    effect = _design_effect(confidence - correct, groups)
    return _interval(_places(confidence, bins, binning), confidence, correct, effect, seed)


def classwise_interval(
    probabilities: NDArray[np.float64],
    truth: NDArray[np.bool_],
    bins: int,
    *,
    seed: int = 0,
    groups: Groups | None = None,
) -> Interval:
    """The same for the class-wise error.

    The gaps of one image sum to zero over its classes, so that they say nothing of groups: by how
    much less images of a group tell is taken from the gap of the highest probability.
    """
    best = probabilities.argmax(axis=1)
    rows = np.arange(len(best))
    effect = _design_effect(probabilities[rows, best] - truth[rows, best], groups)
    which = _class_places(probabilities, bins)
    return _interval(which, probabilities.ravel(), truth.ravel(), effect, seed)


def _interval(
    which: NDArray[np.int64],
    confidence: NDArray[np.float64],
    correct: NDArray[np.bool_],
    effect: float,
    seed: int,
) -> Interval:
    method = "bin-inversion-95"
    n = len(confidence)
    if n == 0:
        return Interval(0.0, 1.0, method)
    observed = _error(which, confidence, correct)
    found = _filled(which, confidence, correct)
    count = max(1, round(n / effect))

    generator = np.random.default_rng(seed)
    draws = min(_DRAWS, max(_FEWEST_DRAWS, _DRAWN_BINS // len(found.share)))
    sizes = generator.multinomial(count, found.share / found.share.sum(), size=draws)

    def surprising(accuracy: NDArray[np.float64], above: bool) -> bool:
        """Whether a value as far above (below) as the observed has less than its 2.5 %."""
        drawn = _drawn(found, accuracy, sizes, seed)
        # Few images give few values: one that equals the observed is no surprise on either side.
        near = np.isclose(drawn, observed, rtol=1e-9, atol=1e-12)
        return bool((near | (drawn > observed if above else drawn < observed)).mean() < _TAIL)

    share = _last(lambda part: surprising(_concentrated(found, count, 1 - part), above=True))
    steps = _last(lambda part: surprising(_enlarged(found, count, part * _FARTHEST), above=False))
    low = found.error(_concentrated(found, count, 1 - share))
    high = found.error(_enlarged(found, count, steps * _FARTHEST))
    return Interval(min(low, observed), max(high, observed), method)


def _last(surprising: Callable[[float], bool]) -> float:
    """How far one may go from 0 to 1 before it surprises, by halving."""
    if surprising(0.0):
        return 0.0
    if not surprising(1.0):
        return 1.0
    inside, outside = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        inside, outside = (inside, middle) if surprising(middle) else (middle, outside)
    return inside


def _error(
    which: NDArray[np.int64], confidence: NDArray[np.float64], correct: NDArray[np.bool_]
) -> float:
    gaps = np.bincount(which, weights=confidence - correct)
    return float(np.abs(gaps).sum() / max(len(confidence), 1))


def _filled(
    which: NDArray[np.int64], confidence: NDArray[np.float64], correct: NDArray[np.bool_]
) -> _Bins:
    counts = np.bincount(which)
    kept = counts > 0
    sizes = counts[kept].astype(np.float64)
    sums = np.bincount(which, weights=confidence)[kept]
    right = np.bincount(which, weights=correct)[kept]
    return _Bins(sizes / len(confidence), sums / sizes, right / sizes)


def _standard_errors(found: _Bins, count: int) -> NDArray[np.float64]:
    sizes = found.share * count
    # The error of a share of 0 or 1 is not 0: two more images, one right and one wrong.
    smooth = (found.accuracy * sizes + 1) / (sizes + 2)
    errors: NDArray[np.float64] = np.sqrt(smooth * (1 - smooth) / (sizes + 2))
    return errors


def _enlarged(found: _Bins, count: int, steps: float) -> NDArray[np.float64]:
    """True accuracies whose gaps are all larger by so many standard errors."""
    gaps = found.confidence - found.accuracy
    size = np.abs(gaps) + steps * _standard_errors(found, count)
    moved: NDArray[np.float64] = np.clip(found.confidence - np.sign(gaps) * size, 0.0, 1.0)
    return moved


def _concentrated(found: _Bins, count: int, share: float) -> NDArray[np.float64]:
    """True accuracies with a share of the observed error, left in the bins that show it best.

    All other bins are calibrated, and what they show is chance: no truth explains more by chance.
    """
    gaps = found.confidence - found.accuracy
    order = np.argsort(-np.abs(gaps) / _standard_errors(found, count), kind="stable")
    parts = (found.share * np.abs(gaps))[order]
    before = np.cumsum(parts) - parts
    kept = np.zeros_like(parts)
    kept[order] = np.clip(share * parts.sum() - before, 0.0, parts)
    truth: NDArray[np.float64] = found.confidence - np.sign(gaps) * kept / found.share
    return np.clip(truth, 0.0, 1.0)


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


def _places(
    confidence: NDArray[np.float64], bins: int, binning: Binning = "width"
) -> NDArray[np.int64]:
    """The bin of each confidence."""
    if binning == "width":
        return np.minimum((confidence * bins).astype(np.int64), bins - 1)
    # The rank of the first that is as large: equal confidences go together.
    ranks = np.searchsorted(np.sort(confidence), confidence, side="left")
    places: NDArray[np.int64] = ranks * bins // max(len(confidence), 1)
    return places


def _class_places(probabilities: NDArray[np.float64], bins: int) -> NDArray[np.int64]:
    """The bin of every probability, those of one class after those of the one before."""
    first = np.arange(probabilities.shape[1]) * bins
    return (_places(probabilities, bins) + first).ravel()
