"""Resampled means: how often each image was drawn, times the values of the images.

The counts of a resample depend on the seed and the number of images alone, so they are drawn once
and serve every score of every model on the same images; a mean is then one matrix product.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stockpot.errors import BadParameterError

Groups = ArrayLike
"""A label for each image; equal ones belong together."""

_AT_ONCE = 2_000_000
"""Draws that are held at a time: 16 MB."""
_KEPT = 25_000_000
"""Counts that are kept, one byte each; larger tables are drawn anew every time."""
RESAMPLES = 2000
"""As many as a score has unless it says otherwise; those of fewer are the first of these."""


def resampled_means(
    values: NDArray[np.float64], *, seed: int, resamples: int, groups: Groups | None = None
) -> NDArray[np.float64]:
    """Means over resampled rows, drawn with replacement: resamples x columns.

    Args:
        values: one row per image; its columns are resampled together.
        seed: of the draws; the same seed draws the same images for any values.
        resamples: how many times to draw.
        groups: which rows belong together, by equal labels: whole groups are drawn. Pictures of
            one object are not independent, and drawing them singly makes intervals too narrow.
    """
    if groups is not None:
        table = group_sums(values, groups)
        means = resampled_means(table, seed=seed, resamples=resamples)
        # Groups differ in size: the mean is that of all rows of the drawn groups.
        return means[:, :-1] / means[:, -1:]
    n = len(values)
    means = np.zeros((resamples, values.shape[1]))
    if n == 0:
        return means
    step = max(1, _AT_ONCE // n)
    parts: Iterator[NDArray[np.uint8]]
    if max(resamples, RESAMPLES) * n <= _KEPT:
        kept = _kept_counts(n, seed, max(resamples, RESAMPLES))
        parts = (kept[start : start + step] for start in range(0, resamples, step))
    else:
        parts = _counts(n, seed, resamples, step)
    start = 0
    for part in parts:
        rows = part[: resamples - start].astype(np.float64)
        np.matmul(rows, values, out=means[start : start + len(rows)])
        start += len(rows)
    return means / n


def group_sums(values: NDArray[np.float64], groups: Groups) -> NDArray[np.float64]:
    """The columns' sums over each group, and in a last column how many rows it has."""
    labels = np.asarray(groups)
    if len(labels) != len(values):
        raise BadParameterError(
            f"groups: expected a label for each of {len(values)} images, got {len(labels)}."
        )
    known, owners = np.unique(labels, return_inverse=True)
    table = np.zeros((len(known), values.shape[1] + 1))
    np.add.at(table, owners, np.column_stack([values, np.ones(len(values))]))
    return table


def _counts(n: int, seed: int, resamples: int, step: int) -> Iterator[NDArray[np.uint8]]:
    """How often each of n images is drawn, `step` resamples at a time.

    A byte is enough: that one image of many is drawn 256 times is less likely than 1e-500.
    """
    generator = np.random.default_rng(seed)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        drawn = generator.integers(0, n, size=(size, n))
        drawn += np.arange(size)[:, None] * n
        yield np.bincount(drawn.ravel(), minlength=size * n).astype(np.uint8).reshape(size, n)


@lru_cache(maxsize=4)
def _kept_counts(n: int, seed: int, resamples: int) -> NDArray[np.uint8]:
    return np.concatenate(list(_counts(n, seed, resamples, max(1, _AT_ONCE // n))))
