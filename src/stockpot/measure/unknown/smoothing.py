"""Randomised smoothing (Cohen et al., arXiv:1902.02918): from counts under noise to certificates.

The smoothed classifier answers what the model answers most often when Gaussian noise of standard
deviation sigma is added to the pixels. If that answer has at least the probability p > 1/2, no
change of l_2 length below sigma * Phi^-1(p) alters it. p is bounded from below by Clopper and
Pearson from n draws, for the class that n0 other draws have chosen; a bound that fails in at most a
share alpha of all images.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, binomtest, norm

ABSTAIN = -1

Counts = NDArray[np.int64]


def lower_bound(successes: int, n: int, alpha: float) -> float:
    """Clopper and Pearson's lower bound of a probability; it holds with 1 - alpha."""
    return float(beta.ppf(alpha, successes, n - successes + 1)) if successes else 0.0


def certify(chosen: Counts, counted: Counts, sigma: float, alpha: float) -> tuple[int, float]:
    """The certified class and its radius; `ABSTAIN` and 0 where nothing can be said.

    Args:
        chosen: how often each class was answered in the draws that choose one.
        counted: how often in the others.
        sigma: of the noise.
        alpha: how often a certificate may be wrong.
    """
    best = int(chosen.argmax())
    bound = lower_bound(int(counted[best]), int(counted.sum()), alpha)
    if bound < 0.5:
        return ABSTAIN, 0.0
    return best, sigma * float(norm.ppf(bound))


def predict(counted: Counts, alpha: float) -> int:
    """What the smoothed classifier answers, or `ABSTAIN`; wrong in at most a share alpha."""
    second, best = np.argsort(counted, kind="stable")[-2:]
    first, other = int(counted[best]), int(counted[second])
    if not first or binomtest(first, first + other, 0.5).pvalue > alpha:
        return ABSTAIN
    return int(best)


def largest_radius(n: int, sigma: float, alpha: float) -> float:
    """What is certified where all draws agree."""
    return sigma * float(norm.ppf(lower_bound(n, n, alpha)))
