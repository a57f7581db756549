"""Do generators, oracles and static corruptions order the models alike?

A rank correlation of a few models is small or large by chance. Beside it stand a ceiling (the same
setting on two halves of the images) and a count: of the pairs of models whose order both settings
decide, how many stand in opposite orders.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
from reading import cells
from settings import GENERATORS

from stockpot.results.agreement import (
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


def comparisons(folder: Path) -> list[Agreement]:
    """Every pair of generators, every oracle with the default one, and all with corruptions."""
    settings = settings_of(folder)
    found = []
    for first, second in combinations(settings, 2):
        if "oracle" in first + second and not {first, second} & {"vqgan", STATIC}:
            continue  # oracles are compared under the same generator only
        names = sorted(settings[first].keys() & settings[second].keys())
        if len(names) >= 4:
            tables = {key: [settings[key][name] for name in names] for key in (first, second)}
            found += rank_agreement(tables, resamples=DRAWS)
    return found
