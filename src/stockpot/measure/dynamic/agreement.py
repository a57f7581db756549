"""Do two ways of evaluating rank models alike? Rank correlation with intervals over images.

A ranking of a few models is a few numbers, each with an error of its own. Resampling the images
shows how much of an agreement (or disagreement) is chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from stockpot.errors import BadDataError
from stockpot.measure.dynamic.outcomes import Outcomes
from stockpot.results.schema import CellResult


class Agreement(NamedTuple):
    """Spearman's rank correlation of the models' scores in two settings."""

    first: str
    second: str
    correlation: float
    low: float
    high: float
    models: int
    n: int


Table = NDArray[np.float64]
"""Images x (numerator, denominator, base) of one model: its score is (a / b) / c of the means."""


def fmr_table(found: Outcomes | CellResult) -> Table:
    """What a model's FMR is made of, image by image."""
    if isinstance(found, CellResult):
        withstood, validated, correct = (
            found.outcome(name) for name in ("withstood", "validated", "correct")
        )
    else:
        withstood, validated, correct = found.withstood, found.validated, found.correct
    return np.stack([withstood & validated, validated, correct], axis=1).astype(np.float64)


def accuracy_table(right: NDArray[np.bool_]) -> Table:
    """An ordinary accuracy in the same form."""
    ones = np.ones(len(right))
    return np.stack([right.astype(np.float64), ones, ones], axis=1)


def rank_agreement(
    settings: Mapping[str, Sequence[Table]], *, seed: int = 0, resamples: int = 1000
) -> list[Agreement]:
    """Every pair of settings; each gives one table per model, models in one order.

    Settings on the same images are resampled together; images of different data each on their own.
    """
    counts = {len(tables) for tables in settings.values()}
    if len(counts) != 1 or counts.pop() < 3:
        raise BadDataError(
            "rank agreement needs the same models, at least three, in every setting."
        )
    draws = {name: _scores(tables, seed, resamples) for name, tables in settings.items()}
    names = list(settings)
    found = []
    for place, first in enumerate(names):
        for second in names[place + 1 :]:
            pairs = zip(draws[first][1:], draws[second][1:], strict=True)
            sample = np.array([_spearman(a, b) for a, b in pairs])
            sample = sample[np.isfinite(sample)]
            low, high = np.percentile(sample, [2.5, 97.5]) if len(sample) else (-1.0, 1.0)
            found.append(
                Agreement(
                    first,
                    second,
                    _spearman(draws[first][0], draws[second][0]),
                    float(low),
                    float(high),
                    len(settings[first]),
                    min(len(settings[first][0]), len(settings[second][0])),
                )
            )
    return found


def _scores(tables: Sequence[Table], seed: int, resamples: int) -> NDArray[np.float64]:
    """The models' scores on all images (first row) and on resampled ones."""
    stack = np.stack(tables)
    count = stack.shape[1]
    generator = np.random.default_rng(seed)
    drawn = generator.integers(0, count, (resamples, count))
    rows = np.concatenate([np.arange(count)[None], drawn])
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.stack([stack[:, rows[k]].mean(axis=1) for k in range(len(rows))])
        scores: NDArray[np.float64] = (means[:, :, 0] / means[:, :, 1]) / means[:, :, 2]
    return scores


def _spearman(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    usable = np.isfinite(first) & np.isfinite(second)
    a, b = first[usable], second[usable]
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(spearmanr(a, b).statistic)
