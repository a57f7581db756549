"""Do generators, oracles and static corruptions order the models alike?

A rank correlation of a few models is small or large by chance. Beside it stand a ceiling (the same
setting on two halves of the images) and a count: of the pairs of models whose order both settings
decide, how many stand in opposite orders.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from reading import cells
from scipy.stats import spearmanr
from settings import GENERATORS

from stockpot.measure.dynamic.agreement import (
    Agreement,
    Table,
    accuracy_table,
    fmr_table,
    rank_agreement,
)
from stockpot.results.schema import CellResult

ORACLES = ("generalist", "both", "classifier")
STATIC = "corruptions"
DRAWS = 500


class Comparison(NamedTuple):
    """Two settings: their rank correlation, and the pairs of models that both decide."""

    ranks: Agreement
    decided: int
    opposite: int


def settings_of(folder: Path) -> dict[str, dict[str, Table]]:
    """What each model's score is made of, image by image, in every setting."""
    parts = {name: f"main-{name}" for name in GENERATORS}
    parts |= {f"vqgan, oracle: {name}": f"oracle-{name}" for name in ORACLES}
    found = {
        name: {cell.key.model: fmr_table(cell) for cell in cells(folder / part)}
        for name, part in parts.items()
    }
    found[STATIC] = {cell.key.model: static_table(cell) for cell in cells(folder / "static")}
    return {name: tables for name, tables in found.items() if tables}


def static_table(cell: CellResult) -> Table:
    """Mean accuracy over the corrupted copies, relative to accuracy on the images as they are."""
    corrupted = [cell.outcome(name) for name in cell.outcomes if name != "correct"]
    mean = np.mean([flag.astype(float) for flag in corrupted], axis=0)
    table = accuracy_table(np.ones(len(mean), dtype=bool))
    table[:, 0] = mean
    table[:, 2] = cell.outcome("correct")
    return table


def comparisons(folder: Path) -> list[Comparison]:
    """Every pair of generators, every oracle with the default one, and all with corruptions."""
    settings = settings_of(folder)
    found = []
    for first, second in combinations(settings, 2):
        if "oracle" in first + second and not {first, second} & {"vqgan", STATIC}:
            continue  # oracles are compared under the same generator only
        names = sorted(settings[first].keys() & settings[second].keys())
        if len(names) < 4:
            continue
        tables = {key: [settings[key][name] for name in names] for key in (first, second)}
        (ranks,) = rank_agreement(tables, resamples=DRAWS)
        orders = [decided(np.stack(tables[key])) for key in (first, second)]
        both = np.triu(orders[0] * orders[1], 1)
        found.append(Comparison(ranks, int(np.sum(both != 0)), int(np.sum(both < 0))))
    return found


def decided(stack: NDArray[np.float64]) -> NDArray[np.int64]:
    """+1 or -1 for pairs of models whose difference has a 95 % interval without 0, else 0."""
    count = stack.shape[1]
    rows = np.random.default_rng(0).integers(0, count, (DRAWS, count))
    scores = np.stack([_scores(stack[:, drawn]) for drawn in rows])
    low, high = np.nanpercentile(scores[:, :, None] - scores[:, None, :], [2.5, 97.5], axis=0)
    order: NDArray[np.int64] = (low > 0).astype(np.int64) - (high < 0).astype(np.int64)
    return order


def ceiling(tables: dict[str, Table], splits: int = 100) -> float:
    """The mean rank correlation of a setting with itself, on two halves of its images."""
    stack = np.stack(list(tables.values()))
    generator = np.random.default_rng(0)
    found = []
    for _ in range(splits):
        order = generator.permutation(stack.shape[1])
        half = len(order) // 2
        first, second = (_scores(stack[:, rows]) for rows in (order[:half], order[half:]))
        found.append(float(spearmanr(first, second).statistic))
    return float(np.mean(found))


def _scores(stack: NDArray[np.float64]) -> NDArray[np.float64]:
    means = stack.mean(axis=1)
    scores: NDArray[np.float64] = means[:, 0] / means[:, 1] / means[:, 2]
    return scores
