"""Mean accuracy over several datasets, of a model or of all its runs with other seeds.

The interval answers how the mean would move with other images and other seeds: images of every
dataset and runs are drawn anew together (a two-level bootstrap). With one run it speaks of images
alone. With few runs it is a rough guide: three seeds cannot show their whole spread.

A dataset that only `corruption` was measured on counts by its mean over corruptions and severities.
Images that belong together, as the results tell, are drawn as whole groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from stockpot.results.resamples import group_sums
from stockpot.results.schema import CellResult
from stockpot.results.statistics import Interval
from stockpot.types import Variant

RESAMPLES = 1000
Shares = NDArray[np.float32]
"""For each image the share of answers that are right; 0 or 1 for a single answer."""
Numbers = TypeVar("Numbers", NDArray[np.float32], NDArray[np.float64])
Answers = dict[str, Shares]
"""By dataset."""
Draws = dict[int, NDArray[np.float32]]
"""By number of images, how often each is drawn in each resample."""


class GroupMean(NamedTuple):
    """One model: its mean over datasets and runs."""

    name: str
    value: float
    interval: Interval
    runs: tuple[float, ...]
    """The mean over datasets of each run."""
    n: int
    """Images of all datasets together, or groups of them."""


def group_means(
    results: Sequence[CellResult], data: Sequence[str], *, seed: int = 0
) -> dict[str, GroupMean]:
    """For every model that has per-image outcomes on all of `data`, by name without its seed."""
    return means_of(answers(results), data, seed=seed)


def means_of(
    found: Mapping[str, Mapping[str, Answers]], data: Sequence[str], *, seed: int = 0
) -> dict[str, GroupMean]:
    """The same from answers, which may have been averaged over images that belong together."""
    draws: Draws = {}
    means = {}
    for name, runs in found.items():
        whole = [by_data for by_data in runs.values() if set(data) <= set(by_data)]
        if whole:
            means[name] = _mean(name, whole, data, draws, seed)
    return means


def answers(results: Sequence[CellResult]) -> dict[str, dict[str, Answers]]:
    """For every model, by name without its seed, and every run: each image's share of answers
    that are right, by dataset; a group of images stands for itself (`by_group`)."""
    found: dict[str, dict[str, Answers]] = {}
    # Accuracy on the images as they are comes last, so that it wins over that under corruptions.
    for cell in sorted(results, key=lambda cell: cell.key.measure == "clean"):
        right = shares_right(cell)
        if right is not None:
            runs = found.setdefault(_entry(cell), {})
            runs.setdefault(cell.key.model, {})[cell.key.data] = by_group(right, cell.image_groups)
    return {name: dict(sorted(runs.items())) for name, runs in found.items()}


def by_group(right: Numbers, groups: NDArray[np.int64] | None) -> Numbers:
    """One number for each group, whose mean is that of all images.

    Large groups weigh more: a group's number is the mean, moved by what the group adds to it. So
    resampled means of these numbers spread as the mean over whole drawn groups does, to first
    order, and exactly so where groups are of one size.
    """
    if groups is None:
        return right
    table = group_sums(right[:, None].astype(np.float64), groups)
    mean, size = float(right.mean()), float(table[:, 1].mean())
    moved: Numbers = (mean + (table[:, 0] - mean * table[:, 1]) / size).astype(right.dtype)
    return moved


def _entry(cell: CellResult) -> str:
    """What the model of a cell is a run of: its entry, at its point of a sweep."""
    key = cell.key
    return Variant(key.entry or key.model, None, key.sweep).label


def shares_right(cell: CellResult) -> Shares | None:
    """How right a cell's model is about each image, under all corruptions together if there are
    any; none where the cell keeps no record of it."""
    if cell.key.measure == "clean" and "correct" in cell.outcomes:
        return cell.outcome("correct").astype(np.float32)
    corrupted = [name for name in cell.outcomes if ":" in name]
    if cell.key.measure != "corruption" or not corrupted:
        return None
    flags = np.stack([cell.outcome(name) for name in corrupted])
    share: Shares = flags.mean(axis=0).astype(np.float32)
    return share


def resampled(
    runs: Sequence[Answers],
    data: Sequence[str],
    draws: Draws,
    seed: int = 0,
) -> NDArray[np.float64]:
    """The mean over datasets and runs in every resample; equal seeds draw the same images.

    So the difference of two models' resamples is that of a paired comparison, run n against run n.
    Datasets of equal size are drawn together, since they may show the same objects; where they do
    not, that changes nothing.
    """
    generator = np.random.default_rng([seed, len(runs)])
    chosen = generator.integers(0, len(runs), size=(RESAMPLES, len(runs)))
    total = np.zeros(RESAMPLES)
    for name in data:
        correct = np.stack([run[name] for run in runs])
        weights = _weights(correct.shape[1], draws, seed)
        accuracy = weights @ correct.T
        total += np.take_along_axis(accuracy, chosen, axis=1).mean(axis=1)
    return total / len(data)


def _mean(
    name: str,
    runs: Sequence[Answers],
    data: Sequence[str],
    draws: Draws,
    seed: int,
) -> GroupMean:
    each = tuple(float(np.mean([run[key].mean() for key in data])) for run in runs)
    low, high = np.percentile(resampled(runs, data, draws, seed), [2.5, 97.5])
    method = f"bootstrap-95:images{'+runs' if len(runs) > 1 else ''}"
    interval = Interval(float(low), float(high), method)
    return GroupMean(name, float(np.mean(each)), interval, each, sum(len(runs[0][k]) for k in data))


def _weights(n: int, draws: Draws, seed: int) -> NDArray[np.float32]:
    """How often each image is drawn in each resample, divided by their number."""
    if n not in draws:
        generator = np.random.default_rng([seed, n])
        counts = np.stack(
            [np.bincount(generator.integers(0, n, n), minlength=n) for _ in range(RESAMPLES)]
        )
        draws[n] = (counts / n).astype(np.float32)
    return draws[n]
