"""Intervals for the scores: Wilson for proportions, bootstrap for everything else.

All bootstraps resample images with an explicit seed (`resamples`), so an interval is as
reproducible as the score it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stockpot.errors import BadParameterError
from stockpot.results.resamples import (
    RESAMPLES,
    Groups,
    group_sums,
    resampled_means,
    resampled_tables,
)


class Interval(NamedTuple):
    """A two-sided confidence interval and how it was made."""

    low: float
    high: float
    method: str


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval for a proportion; right at 0 and 1, where the usual one is not."""
    method = f"wilson-{confidence * 100:g}"
    if n == 0:
        return Interval(0.0, 1.0, method)
    if not 0 <= successes <= n:
        raise BadParameterError(f"expected 0 <= successes <= {n}, got {successes}.")
    low, high = _score_interval(successes / n, n, confidence)
    return Interval(low, high, method)


def _score_interval(p: float, n: float, confidence: float) -> tuple[float, float]:
    """Wilson's interval of a share among n, which may be an effective number."""
    z = _normal_quantile(0.5 + confidence / 2)
    scale = 1 + z * z / n
    centre = (p + z * z / (2 * n)) / scale
    half = z / scale * float(np.sqrt(p * (1 - p) / n + z * z / (4 * n * n)))
    # The ends are exact where rounding would leave 1 - 1e-17 or -1e-17.
    low = 0.0 if p == 0 else max(0.0, centre - half)
    high = 1.0 if p == 1 else min(1.0, centre + half)
    return low, high


def share_interval(
    flags: ArrayLike,
    groups: Groups | None = None,
    confidence: float = 0.95,
    *,
    crossed: Groups | None = None,
) -> Interval:
    """Wilson's interval of a share of images; with groups, at their effective number.

    Pictures of one group (an image under many corruptions) are not independent. Their number counts
    by as many as would give a mean the variance that whole groups give it; with k copies of each of
    n images the interval is that of n images. Of two crossed kinds of groups (pictures that share
    a shape, pictures that share a texture) the variances add up, less that of pictures which
    share both (Cameron, Gelbach and Miller 2011).

    Args:
        flags: for each picture whether it counts.
        groups: a label for each; equal ones belong together.
        confidence: of the interval.
        crossed: labels of the second kind.
    """
    right = np.asarray(flags, dtype=np.float64)
    if groups is None or not right.size:
        return wilson(int(right.sum()), int(right.size), confidence)
    share = float(right.mean())
    variance, count = _variance_of_groups(right, groups)
    if crossed is not None:
        of_crossed, fewer = _variance_of_groups(right, crossed)
        pairs = np.char.add(np.char.add(np.asarray(groups, str), "\n"), np.asarray(crossed, str))
        of_both, _ = _variance_of_groups(right, pairs)
        # Never below either kind alone: a difference of estimates may be.
        variance = max(variance, of_crossed, variance + of_crossed - of_both)
        count = min(count, fewer)
    if 0 < share < 1 and variance > 0:
        count = min(share * (1 - share) / variance, float(right.size))
    low, high = _score_interval(share, count, confidence)
    by = _by(groups) if crossed is None else f"{_by(groups)}-x-{_by(crossed)[1:]}"
    return Interval(low, high, f"wilson-{confidence * 100:g}{by}")


def _variance_of_groups(right: NDArray[np.float64], groups: Groups) -> tuple[float, float]:
    """The variance of a mean whose whole groups might have been others, and how many they are."""
    table = group_sums(right[:, None], groups)
    spread = table[:, 0] - right.mean() * table[:, 1]
    return float((spread**2).sum()) / right.size**2, float(len(table))


_QUANTILES = {0.975: 1.959963984540054, 0.995: 2.5758293035489004}
"""Of the normal distribution, to the last bit: importing scipy takes longer than most scores."""


@lru_cache
def _normal_quantile(share: float) -> float:
    if share in _QUANTILES:
        return _QUANTILES[share]
    from scipy.special import ndtri

    return float(ndtri(share))


def bootstrap_mean(
    values: ArrayLike,
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
    groups: Groups | None = None,
) -> Interval:
    """Percentile bootstrap interval of a mean over images, or over whole groups of them."""
    (found,) = bootstrap_means(
        [values], seed=seed, resamples=resamples, confidence=confidence, groups=groups
    )
    return found


def bootstrap_means(
    samples: Sequence[ArrayLike],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
    groups: Groups | None = None,
) -> list[Interval]:
    """The intervals of several means over the same images; the draws are gone through once."""
    columns = [np.asarray(values, dtype=np.float64)[:, None] for values in samples]
    drawn = resampled_tables(columns, seed=seed, resamples=resamples, groups=groups)
    name = f"bootstrap-{confidence * 100:g}{_by(groups)}"
    return [_percentile(means[:, 0], confidence, name) for means in drawn]


def never_certain(
    interval: Interval, value: float, n: int, groups: Groups | None = None
) -> Interval:
    """The interval of a mean of shares; where all images say 0, or all say 1, that of a share.

    Drawing such images anew never gives another mean, as if a few of them made it certain.

    Args:
        interval: from draws.
        value: the mean.
        n: of how many images.
        groups: a label for each image of the whole; equal ones belong together.
    """
    if interval.low < interval.high or value not in (0.0, 1.0):
        return interval
    count = n
    if groups is not None:
        labels = np.asarray(groups)
        count = max(1, round(n * len(np.unique(labels)) / len(labels)))
    low, high = _score_interval(value, count, 0.95)
    return Interval(low, high, f"wilson-95{_by(groups)}")


class PairedDifference(NamedTuple):
    """How much better `a` is than `b` on the same images."""

    difference: float
    low: float
    high: float
    p_value: float
    n: int
    clusters: int
    """What was drawn anew: images, or groups of them."""


def paired_bootstrap(
    a: ArrayLike,
    b: ArrayLike,
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
    groups: Groups | None = None,
) -> PairedDifference:
    """Compare two models on the same images: resample images, keep the pairs together.

    With `groups` (a label per image) whole groups are resampled, such as the pictures of one
    object. The p value is two-sided: twice the smaller share of resamples on one side of zero.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape:
        raise BadParameterError(
            f"a paired comparison needs the same images, got {first.size} and {second.size}."
        )
    delta = first - second
    draws = resampled_means(delta[:, None], seed=seed, resamples=resamples, groups=groups)
    clusters = delta.size if groups is None else len(np.unique(np.asarray(groups)))
    return difference_of(delta, draws[:, 0], clusters, confidence)


def difference_of(
    delta: NDArray[np.float64],
    means: NDArray[np.float64],
    clusters: int,
    confidence: float = 0.95,
) -> PairedDifference:
    """What differences and their resampled means say together."""
    interval = _percentile(means, confidence, "paired-bootstrap")
    # One resample is added to each side: with finitely many a p value of 0 cannot be claimed.
    below, above = (means <= 0).sum() + 1, (means >= 0).sum() + 1
    p_value = min(1.0, 2.0 * float(min(below, above)) / (len(means) + 1))
    value, low, high = float(delta.mean()), interval.low, interval.high
    if low == high and abs(value) <= 1:
        # Where all differences are alike, so are all draws, as if few images made it certain: as
        # many more may differ as Wilson allows, by as much as right and wrong can.
        other = wilson(0, clusters, confidence).high
        low, high = value - other * (1 + value), value + other * (1 - value)
    return PairedDifference(value, low, high, p_value, delta.size, clusters)


def bootstrap_grand_mean(
    columns: ArrayLike, *, seed: int = 0, resamples: int = RESAMPLES, confidence: float = 0.95
) -> Interval:
    """Interval of a mean over conditions (columns), with images (rows) resampled jointly."""
    table = np.asarray(columns, dtype=np.float64)
    means = resampled_means(table, seed=seed, resamples=resamples).mean(axis=1)
    return _percentile(means, confidence, f"bootstrap-{confidence * 100:g}")


def bootstrap_of_means(
    columns: ArrayLike,
    value: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
    groups: Groups | None = None,
) -> Interval:
    """Interval of a function of several means, with images (rows, or groups) resampled jointly.

    `value` turns a table of means (resamples x columns) into one number per resample; numbers that
    do not exist there (a ratio over nothing) are left out.
    """
    table = np.asarray(columns, dtype=np.float64)
    found = value(resampled_means(table, seed=seed, resamples=resamples, groups=groups))
    found = found[np.isfinite(found)]
    method = f"bootstrap-{confidence * 100:g}{_by(groups)}"
    return _percentile(found, confidence, method) if len(found) else Interval(0.0, 0.0, method)


def _by(groups: Groups | None) -> str:
    return "" if groups is None else f":{len(np.unique(np.asarray(groups)))}-groups"


def _percentile(means: NDArray[np.float64], confidence: float, method: str) -> Interval:
    tail = (1 - confidence) / 2 * 100
    low, high = np.percentile(means, [tail, 100 - tail])
    return Interval(float(low), float(high), method)
