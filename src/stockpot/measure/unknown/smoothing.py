"""Randomised smoothing (Cohen et al., arXiv:1902.02918): from counts under noise to certificates.

The smoothed classifier answers what the model answers most often when Gaussian noise of standard
deviation sigma is added to the pixels. If that answer has at least the probability p > 1/2, no
change of l_2 length below sigma * Phi^-1(p) alters it. p is bounded from below by Clopper and
Pearson from n draws, for the class that n0 other draws have chosen; a bound that fails in at most a
share alpha of all images.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binom, norm

ABSTAIN = -1

Counts = NDArray[np.int64]
"""How often each class was answered: images x classes."""
Floats = NDArray[np.float64]


def lower_bound(successes: ArrayLike, n: ArrayLike, alpha: float) -> Floats:
    """Clopper and Pearson's lower bounds of probabilities; each holds with 1 - alpha."""
    hits = np.asarray(successes)
    bound = beta.ppf(alpha, np.maximum(hits, 1), np.asarray(n) - hits + 1)
    found: Floats = np.where(hits > 0, bound, 0.0)
    return found


def certify(
    chosen: Counts, counted: Counts, sigma: float, alpha: float
) -> tuple[NDArray[np.int64], Floats]:
    """The certified classes and their radii; `ABSTAIN` and 0 where nothing can be said.

    Args:
        chosen: of the draws that choose a class.
        counted: of the others.
        sigma: of the noise.
        alpha: how often a certificate may be wrong.
    """
    best = chosen.argmax(axis=1)
    hits = counted[np.arange(len(best)), best]
    bound = lower_bound(hits, counted.sum(axis=1), alpha)
    known = bound >= 0.5
    radius: Floats = np.where(known, sigma * norm.ppf(np.maximum(bound, 0.5)), 0.0)
    return np.where(known, best, ABSTAIN), radius


def predict(counted: Counts, alpha: float) -> NDArray[np.int64]:
    """What the smoothed classifier answers, or `ABSTAIN`; wrong in at most a share alpha.

    The two most frequent answers must differ by more than the tosses of a coin would.
    """
    order = np.argsort(counted, axis=1, kind="stable")
    rows = np.arange(len(counted))
    first, second = counted[rows, order[:, -1]], counted[rows, order[:, -2]]
    chance = np.minimum(1.0, 2 * binom.sf(first - 1, first + second, 0.5))
    return np.where((first > 0) & (chance <= alpha), order[:, -1], ABSTAIN)


def largest_radius(n: int, sigma: float, alpha: float) -> float:
    """What is certified where all draws agree."""
    return sigma * float(norm.ppf(lower_bound(n, n, alpha)))
