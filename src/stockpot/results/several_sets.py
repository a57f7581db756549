"""Means over several sets of images and differences between them, when they may share the images.

Sets of one size may show the same images, row by row: objects on other backgrounds, an image under
other corruptions. As far as the answers to them agree by row, they are no further evidence. Where
sets of one size show different images, answers agree by chance alone, and next to nothing changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stockpot.results.resamples import Groups
from stockpot.results.statistics import Interval, share_interval


def newcombe(
    first: NDArray[np.bool_],
    second: NDArray[np.bool_],
    groups: tuple[Groups | None, Groups | None] = (None, None),
) -> Interval:
    """Newcombe's interval for the difference of two shares.

    Sets of one size are paired by row, since they may show the same images: shares that rise and
    fall together have a narrower difference. Where they do not, that changes nothing. Images of one
    group (of either set) count together.
    """
    a, b = float(first.mean()), float(second.mean())
    one, two = share_interval(first, groups[0]), share_interval(second, groups[1])
    shared = likeness(first, second)
    low = a - b - _joint([a - one.low, two.high - b], -shared)
    high = a - b + _joint([one.high - a, b - two.low], -shared)
    return Interval(low, high, "newcombe-paired-95" if shared else "newcombe-95")


def likeness(first: NDArray[np.generic], second: NDArray[np.generic]) -> float:
    """How far two sets of answers rise and fall together by row: a correlation, at least 0.

    It is 0 for sets of different sizes, which cannot be the same images, and where either never
    changes.
    """
    if first.size != second.size or first.size < 2:
        return 0.0
    a, b = np.asarray(first, np.float64).ravel(), np.asarray(second, np.float64).ravel()
    a, b = a - a.mean(), b - b.mean()
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return min(1.0, max(0.0, float(a @ b) / scale)) if scale else 0.0


def mean_half_width(distances: Sequence[float], sets: Sequence[NDArray[np.generic]]) -> float:
    """The distance of a mean to its bound, from those of its parts.

    Parts on different images are independent, and distances add in squares. Parts on the same
    images err together: as far as their answers agree by row, distances add as they are.
    """
    total = 0.0
    for row, (mine, one) in enumerate(zip(distances, sets, strict=True)):
        total += mine * mine
        for other, two in zip(distances[:row], sets[:row], strict=True):
            total += 2 * likeness(one, two) * mine * other
    return math.sqrt(max(total, 0.0)) / len(distances)


def _joint(distances: Sequence[float], correlation: float) -> float:
    one, two = distances
    return math.sqrt(max(one * one + 2 * correlation * one * two + two * two, 0.0))


def mean_of_sets(
    sets: Sequence[NDArray[np.bool_]], groups: Sequence[Groups | None] = ()
) -> tuple[float, Interval]:
    """The mean of several sets' accuracies, each counting equally, with its interval.

    Sets of one size are taken by row to show the same images (`mean_half_width`); groups say for
    each set which of its images belong together.
    """
    shares = [float(flags.mean()) for flags in sets]
    known = groups or [None] * len(sets)
    bounds = [share_interval(flags, own) for flags, own in zip(sets, known, strict=True)]
    mean = sum(shares) / len(sets)
    lower = [p - bound.low for p, bound in zip(shares, bounds, strict=True)]
    upper = [bound.high - p for p, bound in zip(shares, bounds, strict=True)]
    down, up = mean_half_width(lower, sets), mean_half_width(upper, sets)
    return mean, Interval(mean - down, mean + up, "wilson-combined-95")
