"""Tables of scores, one for each measure of each dataset, and what models are trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from stockpot.charts import Mark, whiskers
from stockpot.report.design import Cell, Column, score_cell, table
from stockpot.results.headline import (
    Shown,
    format_score,
    headline_columns,
    headline_rows,
    images_of,
    split_by_data,
)
from stockpot.results.schema import CellResult
from stockpot.results.score_tables import corruption_tables
from stockpot.results.summary.comparable import Comparable, comparable
from stockpot.results.summary.notes import gathered_notes

_MOST = 40
"""Rows that are shown at first."""


class Board(NamedTuple):
    """One measure: its table."""

    title: str
    table: Markup


class DataBoards(NamedTuple):
    """One dataset: the tables of its measures, the chart of accuracy, the notes of its cells."""

    data: str
    facts: str
    chart: Markup | None
    boards: list[Board]
    notes: list[str]


def boards(results: Sequence[CellResult]) -> list[DataBoards]:
    """All headline scores. What cannot be compared does not share a table."""
    found = []
    for data, cells in split_by_data(results).items():
        tables = [_board(number, group) for number, group in enumerate(comparable(cells))]
        facts = f"{images_of(cells)}; {cells[0].data.classes} classes"
        found.append(
            DataBoards(data, facts, _chart(cells), [one for one in tables if one],
                       gathered_notes(cells, results))
        )  # fmt: skip
    return [one for one in found if one.boards]


def _board(number: int, group: Comparable) -> Board | None:
    columns = headline_columns(group.cells)
    if not columns:
        return None
    rows = headline_rows(group.cells, columns)
    first = columns[0].metric
    if "accuracy" in first:
        rows = dict(sorted(rows.items(), key=lambda item: -_value(item[1][0])))
    trained = {one.model for one in corruption_tables(group.cells) if one.trained}
    heads = [Column("model", number=False),
             *(Column(column.title, fold=max(0, place - 3)) for place, column in enumerate(columns))
             ]  # fmt: skip
    body = [
        [Cell(f"{model} †" if model in trained else model), *map(_cell, row)]
        for model, row in rows.items()
    ]
    name = f"{group.data}-{group.measure}-{number}"
    title = f"{group.measure} ({group.apart})" if group.apart else group.measure
    return Board(title, table(name, heads, body, most=_MOST))


def _cell(shown: Shown) -> Cell:
    return score_cell(shown.score, best=shown.best)


def _value(shown: Shown) -> float:
    return shown.score.value if shown.score else -1.0


def _chart(cells: Sequence[CellResult]) -> Markup | None:
    """Clean accuracy with whiskers, where several models have it on the same images."""
    own = [cell for cell in cells if cell.key.measure == "clean"]
    if len({cell.data.fingerprint for cell in own}) != 1 or not 1 < len(own) <= _MOST:
        return None
    points = []
    for cell in own:
        score = next((s for s in cell.scores if s.metric == "accuracy" and not s.condition), None)
        if score and score.ci_low is not None and score.ci_high is not None:
            text = format_score(score)
            points.append(Mark(cell.key.model, score.value, score.ci_low, score.ci_high, text))
    points.sort(key=lambda point: -point.value)
    return Markup(whiskers(points).inline()) if len(points) > 1 else None
