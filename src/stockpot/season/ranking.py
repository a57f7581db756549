"""The order of soups, best first: by score, and among equals by a rule without favourites.

Few images give many soups the same score, and the first of a grid is its corner: the least weight
of the first member. So equal soups are told apart by their loss, then by how near their weights are
to equal ones, and those that are equally near by a draw.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def ranking(
    weights: ArrayLike, scores: ArrayLike, losses: ArrayLike | None = None, *, seed: int = 0
) -> NDArray[np.intp]:
    """The rows of `weights`, best first.

    Args:
        weights: one row per soup.
        scores: higher is better; what is no number comes last.
        losses: of equally good soups the one with the lower; what is no number comes last.
        seed: of the draw among soups that are equal in all of that.
    """
    points = np.asarray(weights, dtype=np.float64)
    far = _from_equal(points)
    lot = np.random.default_rng(seed).permutation(len(points))
    found = np.nan_to_num(
        np.asarray(scores, np.float64), nan=-np.inf, posinf=np.inf, neginf=-np.inf
    )
    loss = np.zeros(len(points)) if losses is None else np.asarray(losses, np.float64)
    loss = np.nan_to_num(loss, nan=np.inf, posinf=np.inf, neginf=-np.inf)
    order: NDArray[np.intp] = np.lexsort((lot, far, loss, -found))
    return order


def _from_equal(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """The squared distance to equal weights; rounded, so that mirror images are equally far."""
    flat = points.reshape(len(points), -1)
    count = points.shape[1] if points.ndim > 1 else 1
    distance: NDArray[np.float64] = ((flat - 1 / count) ** 2).sum(axis=1).round(9)
    return distance
