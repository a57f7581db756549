"""From right and wrong answers under corruption to scores with intervals.

Given a fixed baseline, mCE and its relative form are means over images of a weighted sum of each
image's errors, so their intervals come from a plain bootstrap over images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stockpot.datasets.corrupted.families import Family
from stockpot.measure.mce import IMAGENET_C, Baseline, mean_accuracy, score
from stockpot.measure.measurement import proportion, with_interval
from stockpot.results.resamples import Groups
from stockpot.results.schema import Score
from stockpot.results.statistics import bootstrap_means, never_certain

Cell = tuple[str, float]


@dataclass(frozen=True)
class Grid:
    """Which images were right, clean and in every cell (corruption, severity)."""

    clean: NDArray[np.bool_]
    cells: Mapping[Cell, NDArray[np.bool_]]
    groups: Groups | None = None
    """Which images belong together; those of one row are the same image anyway."""

    def errors(self) -> dict[str, dict[float, float]]:
        """Error rates by corruption and severity."""
        table: dict[str, dict[float, float]] = {}
        for (name, severity), right in self.cells.items():
            table.setdefault(name, {})[severity] = 1 - float(right.mean())
        return table

    def clean_error(self) -> float:
        """The error on the images as they are."""
        return 1 - float(self.clean.mean())


@dataclass(frozen=True)
class Scored:
    """Scores, the name of their convention, and what must be said with them."""

    scores: list[Score]
    convention: str
    notes: tuple[str, ...]


def grid_scores(
    grid: Grid, baseline: Baseline | None, *, seed: int, family: Family = IMAGENET_C
) -> Scored:
    """Every score of a grid; means run over the corruptions of the benchmark."""
    errors, benchmark = grid.errors(), family.corruptions
    result = score(errors, grid.clean_error(), baseline, family)
    n, groups = len(grid.clean), grid.groups
    named = baseline.name if baseline else "none"
    wrong = {cell: (~right).astype(np.float64) for cell, right in grid.cells.items()}
    chosen = [cell for cell in wrong if cell[0] in benchmark] or list(wrong)
    mean_right = 1 - np.mean([wrong[cell] for cell in chosen], axis=0)
    condition = {"baseline": named}
    per_image = _contributions(wrong, (~grid.clean).astype(np.float64), baseline)
    asked: list[_Asked] = [
        _Asked("mean_corruption_accuracy", mean_accuracy(errors, family), mean_right, True, {})
    ]
    for metric, value, kept, images in (
        ("mce", result.mce, result.ce, per_image.plain),
        ("relative_mce", result.relative_mce, result.relative_ce, per_image.relative),
    ):
        columns = [images[name] for name in benchmark if name in kept and name in images]
        if value is not None and columns:
            asked.append(_Asked(metric, value, np.mean(columns, axis=0), False, condition))
    for metric, values, images in (
        ("ce", result.ce, per_image.plain),
        ("relative_ce", result.relative_ce, per_image.relative),
    ):
        for name, value in values.items():
            about = {"corruption": name, **condition}
            asked.append(_Asked(metric, value, images[name], False, about))
    intervals = bootstrap_means([one.images for one in asked], seed=seed, groups=groups)
    scores = [proportion("accuracy", grid.clean, groups=groups)]
    # The first is a mean of shares of right answers; errors are divided by what they are of others.
    intervals[0] = never_certain(intervals[0], asked[0].value, n, groups)
    scores += [
        with_interval(one.metric, one.value, n, interval, better=one.better, condition=one.about)
        for one, interval in zip(asked, intervals, strict=True)
    ]
    for (name, severity), right in grid.cells.items():
        about_cell: dict[str, str | int | float] = {"corruption": name, "severity": severity}
        scores.append(proportion("error", ~right, about_cell, better=False, groups=groups))
    notes = []
    if result.left_out:
        notes.append(f"mCE leaves out {', '.join(result.left_out)}: {named} has no usable error")
    if result.relative_left_out:
        notes.append(
            f"relative mCE leaves out {', '.join(result.relative_left_out)}: {named} loses less "
            "than one point there, or is not known there"
        )
    return Scored(scores, result.convention, tuple(notes))


class _Asked(NamedTuple):
    """A score that is a mean over images, before its interval is known."""

    metric: str
    value: float
    images: NDArray[np.float64]
    better: bool
    about: Mapping[str, str | int | float]


@dataclass(frozen=True)
class _Contributions:
    """What each image adds to CE and to relative CE, by corruption; their means are the scores."""

    plain: dict[str, NDArray[np.float64]]
    relative: dict[str, NDArray[np.float64]]


def _contributions(
    wrong: Mapping[Cell, NDArray[np.float64]],
    clean_wrong: NDArray[np.float64],
    baseline: Baseline | None,
) -> _Contributions:
    plain, relative = {}, {}
    for name in dict.fromkeys(name for name, _ in wrong):
        severities = [severity for other, severity in wrong if other == name]
        mean_wrong = np.mean([wrong[name, severity] for severity in severities], axis=0)
        divisor = 1.0 if baseline is None else baseline.mean(name, severities)
        if not divisor:
            continue
        plain[name] = mean_wrong / divisor
        lost = divisor if baseline is None else divisor - (baseline.clean or 0.0)
        if lost > 0:
            relative[name] = (mean_wrong - clean_wrong) / lost
    return _Contributions(plain, relative)
