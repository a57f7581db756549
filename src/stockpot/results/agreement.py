"""Do two ways of evaluating rank models alike? Rank correlation with intervals over images.

A ranking of a few models is a few numbers, each with an error of its own. Resampling the images
shows how much of an agreement (or disagreement) is chance; beside it stand how many pairs of models
both settings decide, in which order, and how well a setting agrees with itself on other images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stockpot.errors import BadDataError
from stockpot.results.groups import by_group
from stockpot.results.schema import CellResult

Correlation = Literal["spearman", "kendall"]
Table = NDArray[np.float64]
"""Images x (numerator, denominator, base) of one model: its score is (a / b) / c of the means."""


class Agreement(NamedTuple):
    """The rank correlation of the models' scores in two settings."""

    first: str
    second: str
    correlation: float
    low: float
    high: float
    models: int
    n: int
    decided: int
    """Pairs of models whose order both settings decide: their intervals leave 0 out."""
    opposite: int
    """Those of them that stand in opposite orders."""


def fmr_table(cell: CellResult) -> Table:
    """What a model's FMR is made of, image by image."""
    withstood, validated, correct = (
        cell.outcome(name) for name in ("withstood", "validated", "correct")
    )
    return np.stack([withstood & validated, validated, correct], axis=1).astype(np.float64)


def accuracy_table(right: NDArray[np.bool_] | NDArray[np.float64]) -> Table:
    """An ordinary accuracy in the same form."""
    ones = np.ones(len(right))
    return np.stack([right.astype(np.float64), ones, ones], axis=1)


def outcome_table(cell: CellResult) -> Table:
    """What a cell's score is made of: FMR of a search, accuracy under corruptions relative to that
    on the images as they are, or accuracy."""
    if cell.key.measure == "dynamic":
        table = fmr_table(cell)
    else:
        table = accuracy_table(cell.outcome("correct"))
        if copies := [cell.outcome(name) for name in cell.outcomes if name != "correct"]:
            table[:, 2] = table[:, 0]
            table[:, 0] = np.mean(copies, axis=0)
    return np.stack([by_group(column, cell.image_groups) for column in table.T], axis=1)


def cell_agreement(
    settings: Mapping[str, Sequence[CellResult]],
    *,
    kind: Correlation = "spearman",
    seed: int = 0,
    resamples: int = 1000,
) -> list[Agreement]:
    """Every pair of settings by the cells of each, over the models (three or more) of both."""
    found: list[Agreement] = []
    for pair in combinations(settings, 2):
        tables = {n: {c.key.model: outcome_table(c) for c in settings[n]} for n in pair}
        common = sorted(set.intersection(*(set(by_model) for by_model in tables.values())))
        if len(common) >= 3:
            chosen = {name: [by_model[m] for m in common] for name, by_model in tables.items()}
            found += rank_agreement(chosen, kind=kind, seed=seed, resamples=resamples)
    return found


def rank_agreement(
    settings: Mapping[str, Sequence[Table]],
    *,
    kind: Correlation = "spearman",
    seed: int = 0,
    resamples: int = 1000,
) -> list[Agreement]:
    """Every pair of settings; each gives one table per model, models in one order.

    Settings on the same images are resampled together; images of different data each on their own.
    """
    counts = {len(tables) for tables in settings.values()}
    if len(counts) != 1 or counts.pop() < 3:
        raise BadDataError(
            "rank agreement needs the same models, at least three, in every setting."
        )
    draws = {name: _draws(np.stack(tables), seed, resamples) for name, tables in settings.items()}
    found = []
    for first, second in combinations(settings, 2):
        sample = _correlations(draws[first][1:], draws[second][1:], kind)
        sample = sample[np.isfinite(sample)]
        low, high = np.percentile(sample, [2.5, 97.5]) if len(sample) else (-1.0, 1.0)
        orders = np.triu(_order(draws[first][1:]) * _order(draws[second][1:]), 1)
        found.append(
            Agreement(
                first,
                second,
                _correlation(draws[first][0], draws[second][0], kind),
                float(low),
                float(high),
                len(settings[first]),
                min(len(settings[first][0]), len(settings[second][0])),
                int(np.sum(orders != 0)),
                int(np.sum(orders < 0)),
            )
        )
    return found


def self_agreement(
    tables: Sequence[Table], *, kind: Correlation = "spearman", splits: int = 100, seed: int = 0
) -> float:
    """The mean rank correlation of a setting with itself on two halves of its images: a ceiling."""
    stack = np.stack(tables)
    generator = np.random.default_rng(seed)
    found = []
    for _ in range(splits):
        order = generator.permutation(stack.shape[1])
        parts = order[: len(order) // 2], order[len(order) // 2 :]
        first, second = (_scores(stack[:, rows]) for rows in parts)
        found.append(_correlation(first, second, kind))
    return float(np.nanmean(found))


def _draws(stack: NDArray[np.float64], seed: int, resamples: int) -> NDArray[np.float64]:
    """The models' scores on all images (first row) and on resampled ones."""
    count = stack.shape[1]
    drawn = np.random.default_rng(seed).integers(0, count, (resamples, count))
    return np.stack([_scores(stack), *(_scores(stack[:, rows]) for rows in drawn)])


def _scores(stack: NDArray[np.float64]) -> NDArray[np.float64]:
    means = stack.mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        scores: NDArray[np.float64] = (means[:, 0] / means[:, 1]) / means[:, 2]
    return scores


def _order(sample: NDArray[np.float64]) -> NDArray[np.int64]:
    """+1 or -1 for pairs of models whose difference has a 95 % interval without 0, else 0."""
    low, high = np.nanpercentile(sample[:, :, None] - sample[:, None, :], [2.5, 97.5], axis=0)
    order: NDArray[np.int64] = (low > 0).astype(np.int64) - (high < 0).astype(np.int64)
    return order


def _correlations(
    first: NDArray[np.float64], second: NDArray[np.float64], kind: Correlation
) -> NDArray[np.float64]:
    """Row by row; all rows at once where that gives the same."""
    if kind == "kendall" or not (np.isfinite(first).all() and np.isfinite(second).all()):
        pairs = zip(first, second, strict=True)
        return np.array([_correlation(a, b, kind) for a, b in pairs])
    from scipy.stats import rankdata

    a, b = (rankdata(rows, axis=1) for rows in (first, second))
    a, b = (ranks - ranks.mean(axis=1, keepdims=True) for ranks in (a, b))
    with np.errstate(invalid="ignore"):  # where all are equal there is no order
        found: NDArray[np.float64] = (a * b).sum(axis=1) / np.sqrt(
            (a**2).sum(axis=1) * (b**2).sum(axis=1)
        )
    return found


def _correlation(
    first: NDArray[np.float64], second: NDArray[np.float64], kind: Correlation
) -> float:
    usable = np.isfinite(first) & np.isfinite(second)
    a, b = first[usable], second[usable]
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    from scipy.stats import kendalltau, spearmanr  # a second, for what few runs ask

    return float((spearmanr if kind == "spearman" else kendalltau)(a, b).statistic)
