"""Images drawn with replacement, again and again: the draws of all bootstraps.

The counts of a resample depend on the seed and the number of images alone, so they are drawn once
and serve every score of every model on the same images; a mean is then one matrix product.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stockpot.errors import BadParameterError

Groups = ArrayLike
"""A label for each image; equal ones belong together."""

_AT_ONCE = 2_000_000
"""Draws that are held at a time: 16 MB."""
_KEPT = 125_000_000
"""Counts that are kept, one byte each, of all sizes together (those of 50,000 images alone take
100 MB, and a grid of corruptions asks for them thirty times); larger tables are drawn anew."""
_MOST_CORES = 8
"""Beyond these, sums wait for memory."""
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
    return resampled_tables([values], seed=seed, resamples=resamples, groups=groups)[0]


def resampled_tables(
    tables: Sequence[NDArray[np.float64]], *, seed: int, resamples: int, groups: Groups | None
) -> list[NDArray[np.float64]]:
    """The same for several tables of the same images; each has the numbers that it has alone."""
    if groups is not None:
        sums = [group_sums(values, groups) for values in tables]
        found = resampled_tables(sums, seed=seed, resamples=resamples, groups=None)
        # Groups differ in size: the mean is that of all rows of the drawn groups.
        return [means[:, :-1] / means[:, -1:] for means in found]
    n = len(tables[0]) if tables else 0
    means_of = [np.zeros((resamples, values.shape[1])) for values in tables]
    if n == 0:
        return means_of
    step = max(1, _AT_ONCE // n)

    def add(start: int, part: NDArray[np.uint8], room: NDArray[np.float64]) -> None:
        rows = room[: min(len(part), resamples - start)]
        np.copyto(rows, part[: len(rows)])
        # Table by table: one product of all would round otherwise.
        for values, means in zip(tables, means_of, strict=True):
            np.matmul(rows, values, out=means[start : start + len(rows)])

    starts = range(0, resamples, step)
    # One piece of memory for all parts: pages that are met for the first time cost more than sums.
    shape = (min(step, resamples), n)
    if max(resamples, RESAMPLES) * n > _KEPT:
        room = np.empty(shape)
        for start, part in zip(starts, _counts(n, seed, resamples, step), strict=True):
            add(start, part, room)
        return [means / n for means in means_of]
    kept = _kept_counts(n, seed, max(resamples, RESAMPLES))
    workers = min(_cores(), len(starts))

    def own(worker: int) -> None:
        with _rooms:
            room = np.empty(shape)
            for start in starts[worker::workers]:
                add(start, kept[start : start + step], room)

    with ThreadPoolExecutor(workers) as threads:  # no thread begins before it has work
        list(threads.map(own, range(workers)))
    return [means / n for means in means_of]


def _cores() -> int:
    granted = getattr(os, "sched_getaffinity", None)
    return min(_MOST_CORES, len(granted(0)) if granted else os.cpu_count() or 1)


_rooms = threading.BoundedSemaphore(_cores())
"""Many models may be scored at a time; together they have as much memory and as many cores as one
of them would have."""


def image_counts(
    n: int, *, seed: int, resamples: int = RESAMPLES, groups: Groups | None = None
) -> Iterator[NDArray[np.uint8]]:
    """How often each image is drawn, some resamples at a time, for what is not a mean.

    Args:
        n: how many images there are.
        seed: of the draws.
        resamples: how many times to draw.
        groups: which images belong together: whole groups are drawn.
    """
    if groups is None:
        yield from _counts(n, seed, resamples, max(1, _AT_ONCE // max(n, 1)))
        return
    known, owners = np.unique(np.asarray(groups), return_inverse=True)
    for part in _counts(len(known), seed, resamples, max(1, _AT_ONCE // max(n, 1))):
        yield part[:, owners]


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


_tables: dict[tuple[int, int, int], NDArray[np.uint8]] = {}


_drawing = threading.Lock()
_ahead: tuple[int, int, int] | None = None
"""What was asked for ahead last: many models are scored by the same draws, one after the other."""


def draw_ahead(n: int, seed: int, groups: Groups | None = None) -> None:
    """Draw the resamples of so many images in a thread, for who will score them in a while."""
    global _ahead
    drawn = n if groups is None else len(np.unique(np.asarray(groups)))
    work = (drawn, seed, RESAMPLES)
    if 0 < RESAMPLES * drawn <= _KEPT and work != _ahead:
        _ahead = work
        threading.Thread(target=_kept_counts, args=work, name="resamples").start()


def _kept_counts(n: int, seed: int, resamples: int) -> NDArray[np.uint8]:
    with _drawing:  # whoever asks while they are being drawn waits for them
        return _drawn_once(n, seed, resamples)


def _drawn_once(n: int, seed: int, resamples: int) -> NDArray[np.uint8]:
    key = (n, seed, resamples)
    if key in _tables:
        _tables[key] = _tables.pop(key)  # the last one asked for is the last to go
        return _tables[key]
    while _tables and sum(table.size for table in _tables.values()) + resamples * n > _KEPT:
        del _tables[next(iter(_tables))]
    parts = _counts(n, seed, resamples, max(1, _AT_ONCE // n))
    _tables[key] = np.concatenate(list(parts))
    return _tables[key]
