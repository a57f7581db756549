"""Every two models on the same images: how far apart, and whether that is more than noise."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from markupsafe import Markup

from stockpot.report.design import Cell, Column, table
from stockpot.results.headline import split_by_data
from stockpot.results.schema import CellResult
from stockpot.results.statistics import PairedDifference, paired_bootstrap

MOST_COMPARED = 12
"""With more models than this, each is compared with the best alone."""


class Comparison(NamedTuple):
    """Two models on the same images."""

    data: str
    better: str
    worse: str
    found: PairedDifference
    """Of the better less the worse."""

    @property
    def clear(self) -> bool:
        """Whether the better one is so beyond noise."""
        return self.found.low > 0


def comparisons(results: Sequence[CellResult]) -> list[Comparison]:
    """Every pair of models on the same images, by paired bootstrap over images or their groups."""
    found = []
    for data, cells in split_by_data(results).items():
        usable = [cell for cell in cells if cell.key.measure == "clean" and cell.outcomes]
        for first, second in _pairs(usable):
            if first.data.fingerprint != second.data.fingerprint:
                continue
            groups = first.image_groups if first.groups else second.image_groups
            right = [cell.outcome("correct") for cell in (first, second)]
            pair = paired_bootstrap(*right, groups=groups)
            a, b = first.key.model, second.key.model
            if pair.difference < 0:
                a, b = b, a
                pair = pair._replace(difference=-pair.difference, low=-pair.high, high=-pair.low)
            found.append(Comparison(data, a, b, pair))
    return found


def pairs_table(results: Sequence[CellResult]) -> Markup | None:
    """The comparisons as a table; none where there is nothing to compare."""
    found = comparisons(results)
    if not found:
        return None
    several = len({pair.data for pair in found}) > 1
    columns = [
        Column("better", number=False),
        Column("than", number=False),
        Column("data", number=False, filter=several),
        Column("points"),
        Column("p"),
        Column("verdict", number=False, filter=True),
    ]
    return table("differences", columns, [_row(pair) for pair in found], most=30)


def _row(pair: Comparison) -> list[Cell]:
    found = pair.found
    p = f"{found.p_value:.3f}" if found.p_value >= 0.001 else "< 0.001"
    return [
        Cell(pair.better),
        Cell(pair.worse),
        Cell(pair.data),
        Cell(f"{100 * found.difference:+.1f}", found.difference, found.low, found.high,
             f"{100 * found.low:+.1f} to {100 * found.high:+.1f}", f"n = {found.n:,}"),
        Cell(p, found.p_value),
        Cell("better" if pair.clear else "not told apart"),
    ]  # fmt: skip


def _pairs(cells: Sequence[CellResult]) -> list[tuple[CellResult, CellResult]]:
    """All pairs of a few models; of many, each with the best, or nobody could read the table."""
    if len(cells) <= MOST_COMPARED:
        return list(combinations(cells, 2))
    best = max(cells, key=lambda cell: cell.score("accuracy").value)
    return [(best, cell) for cell in cells if cell is not best]
