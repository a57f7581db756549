"""How surprising differences are, alone and among many.

One difference: where each image is right or wrong and stands alone, the exact sign test over the
images that only one of the two gets right (McNemar's test in its exact form); otherwise a t test
with the spread of the bootstrap, as if there were two more images, one of them half for and half
against (Agresti and Min, doi:10.1002/sim.1781, who add a half to each cell of McNemar's table), so
that a few images without any difference do not count as certainty.

Many differences: Holm's step-down correction (1979). With k differences the smallest p value is
multiplied by k, the next by k - 1, and none may be smaller than the one before it. Whatever depends
on whatever, the chance that any difference that is none is called one stays below the level.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def holm(p_values: Sequence[float]) -> list[float]:
    """The p values as they count among all of them."""
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(order), 0, -1)
    steps = np.minimum(1.0, np.maximum.accumulate(np.asarray(p_values)[order] * factors))
    found = np.empty(len(order))
    found[order] = steps
    return [float(value) for value in found]


def sign_test(delta: ArrayLike) -> float | None:
    """The exact two-sided p value of differences that are -1, 0 or 1; None for other ones."""
    values = np.asarray(delta, np.float64)
    if not np.isin(values, (-1.0, 0.0, 1.0)).all():
        return None
    from scipy.special import bdtr

    better, worse = int((values > 0).sum()), int((values < 0).sum())
    if not better + worse:
        return 1.0
    return min(1.0, 2 * float(bdtr(min(better, worse), better + worse, 0.5)))


def t_test(difference: float, spread: float, clusters: int) -> float:
    """The two-sided p value of a difference with a standard error, from so many clusters."""
    if clusters < 2:
        return 1.0
    from scipy.special import stdtr

    return float(2 * stdtr(clusters - 1, -abs(difference) / spread))


def standard_error(
    draws: Sequence[NDArray[np.float64]], clusters: Sequence[int], shares: Sequence[float] = ()
) -> float:
    """Of the mean of several differences, from resampled means of each and their clusters.

    Shares say how much of a set's images are its own, where sets show the same: of k such sets each
    adds k times as much, since what is added to one image is added to it in all of them.
    """
    spread = float(np.mean(draws, axis=0).var())
    own = shares or [1.0] * len(clusters)
    added = sum(1 / (n + 2) ** 2 / share for n, share in zip(clusters, own, strict=True))
    added /= len(clusters) ** 2
    return float(np.sqrt(spread + added))
