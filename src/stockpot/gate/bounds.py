"""Where a mean lies, from images that are all there: one-sided bounds that hold for few images too.

Shares of images have Wilson's bounds. Differences (and means of shares) have those of Agresti and
Min (doi:10.1002/sim.1781): two images of our own are added, one of them half for and half against,
so that twenty images without a difference are not taken for proof; then Student's t. Images that
belong together count as one (`by_group`).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from stockpot.results.groups import by_group
from stockpot.results.statistics import share_interval

Values = NDArray[np.float64]


def share_bounds(
    values: Values, alpha: float, groups: NDArray[np.int64] | None
) -> tuple[float, float]:
    """Of the mean of values between 0 and 1; each side is wrong in a share alpha of cases."""
    if np.isin(values, (0.0, 1.0)).all():
        found = share_interval(values, groups, 1 - 2 * alpha)
        return found.low, found.high
    low, high = difference_bounds(2 * values - 1, alpha, groups)
    return (low + 1) / 2, (high + 1) / 2


def difference_bounds(
    delta: Values, alpha: float, groups: NDArray[np.int64] | None
) -> tuple[float, float]:
    """Of the mean of values between -1 and 1."""
    if not len(delta):
        return -1.0, 1.0
    from scipy.special import stdtrit

    own = by_group(delta, groups)
    count = len(own) + 2
    centre = float(own.sum()) / count
    variance = (float((own**2).sum()) + 1) / count - centre**2
    half = float(stdtrit(count - 1, 1 - alpha)) * math.sqrt(max(variance, 0.0) / count)
    return max(-1.0, centre - half), min(1.0, centre + half)


def unpaired_bounds(
    a: tuple[float, float, float], b: tuple[float, float, float], alpha: float
) -> tuple[float, float]:
    """Of a difference of two scores with 95 % intervals (value, low, high), where single images are
    not known: half-widths add in squares (Newcombe 1998)."""
    from scipy.special import ndtri

    scale = float(ndtri(1 - alpha) / ndtri(0.975))
    value = a[0] - b[0]
    down, up = math.hypot(a[0] - a[1], b[2] - b[0]), math.hypot(a[2] - a[0], b[0] - b[1])
    return value - scale * down, value + scale * up
