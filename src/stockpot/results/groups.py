"""Mean accuracy over several datasets, of a model or of all its runs with other seeds.

The interval answers how the mean would move with other images and other seeds: images of every
dataset and runs are drawn anew together (a two-level bootstrap). With one run it speaks of images
alone. With few runs it is a rough guide: three seeds cannot show their whole spread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stockpot.results.schema import CellResult
from stockpot.results.statistics import Interval
from stockpot.seeds import name_of

RESAMPLES = 1000


class GroupMean(NamedTuple):
    """One model: its mean over datasets and runs."""

    name: str
    value: float
    interval: Interval
    runs: tuple[float, ...]
    """The mean over datasets of each run."""
    n: int
    """Images of all datasets together."""


def group_means(
    results: Sequence[CellResult], data: Sequence[str], *, seed: int = 0
) -> dict[str, GroupMean]:
    """For every model that has per-image outcomes on all of `data`, by name without its seed."""
    found: dict[str, dict[str, dict[str, NDArray[np.bool_]]]] = {}
    for cell in results:
        if cell.key.measure == "clean" and cell.key.data in data and "correct" in cell.outcomes:
            runs = found.setdefault(name_of(cell.key.model), {})
            runs.setdefault(cell.key.model, {})[cell.key.data] = cell.outcome("correct")
    draws: dict[tuple[str, int], NDArray[np.float32]] = {}
    means = {}
    for name, runs in found.items():
        whole = [by_data for by_data in runs.values() if set(by_data) == set(data)]
        if whole:
            means[name] = _mean(name, whole, data, draws, seed)
    return means


def resampled(
    runs: Sequence[dict[str, NDArray[np.bool_]]],
    data: Sequence[str],
    draws: dict[tuple[str, int], NDArray[np.float32]],
    seed: int = 0,
) -> NDArray[np.float64]:
    """The mean over datasets and runs in every resample; equal seeds draw the same images.

    So the difference of two models' resamples is that of a paired comparison, run n against run n.
    """
    generator = np.random.default_rng([seed, len(runs)])
    chosen = generator.integers(0, len(runs), size=(RESAMPLES, len(runs)))
    total = np.zeros(RESAMPLES)
    for number, name in enumerate(data):
        correct = np.stack([run[name] for run in runs]).astype(np.float32)
        weights = _weights(name, number, correct.shape[1], draws, seed)
        accuracy = weights @ correct.T
        total += np.take_along_axis(accuracy, chosen, axis=1).mean(axis=1)
    return total / len(data)


def _mean(
    name: str,
    runs: Sequence[dict[str, NDArray[np.bool_]]],
    data: Sequence[str],
    draws: dict[tuple[str, int], NDArray[np.float32]],
    seed: int,
) -> GroupMean:
    each = tuple(float(np.mean([run[key].mean() for key in data])) for run in runs)
    low, high = np.percentile(resampled(runs, data, draws, seed), [2.5, 97.5])
    method = f"bootstrap-95:images{'+runs' if len(runs) > 1 else ''}"
    interval = Interval(float(low), float(high), method)
    return GroupMean(name, float(np.mean(each)), interval, each, sum(len(runs[0][k]) for k in data))


def _weights(
    name: str,
    number: int,
    n: int,
    draws: dict[tuple[str, int], NDArray[np.float32]],
    seed: int,
) -> NDArray[np.float32]:
    """How often each image is drawn in each resample, divided by their number."""
    key = (name, n)
    if key not in draws:
        generator = np.random.default_rng([seed, number, n])
        counts = np.stack(
            [np.bincount(generator.integers(0, n, n), minlength=n) for _ in range(RESAMPLES)]
        )
        draws[key] = (counts / n).astype(np.float32)
    return draws[key]
