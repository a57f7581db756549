"""Fusion swept over one parameter: each headline number as the parameter changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from stockpot.charts import Spot, lines
from stockpot.results.headline import format_score
from stockpot.results.schema import CellResult, Score
from stockpot.results.score_tables import TaskTable, task_tables
from stockpot.results.tables import overall
from stockpot.types import Variant

_METRICS = {
    "clean": ("accuracy",),
    "corruption": ("mean_corruption_accuracy",),
    "adversarial": ("accuracy", "robust_accuracy", "union_accuracy"),
    "dynamic": ("fmr",),
    "shift": ("mean_outside_accuracy",),
}


class SweepSection(NamedTuple):
    """Curves of one fusion."""

    title: str
    chart: Markup


class _Point(NamedTuple):
    entry: str
    key: str
    value: float | str
    score: Score


def sweep_sections(results: Sequence[CellResult]) -> list[SweepSection]:
    """A chart for every fusion that was made with three or more values of one parameter."""
    lines_of: dict[tuple[str, str], dict[str, list[_Point]]] = {}
    for name, point in [*_single(results), *_over_tasks(results)]:
        lines_of.setdefault((point.entry, point.key), {}).setdefault(name, []).append(point)
    sections = []
    for (entry, key), found in lines_of.items():
        whole = {name: points for name, points in found.items() if len(points) >= 3}
        if whole:
            sections.append(SweepSection(f"{entry} by {key}", _chart(key, whole)))
    return sections


def _single(results: Sequence[CellResult]) -> list[tuple[str, _Point]]:
    """Of every dataset that was measured alone; several are averaged below."""
    tasks = {table.measure for table in task_tables(results)}
    found = []
    for cell in results:
        if not cell.key.sweep or cell.key.measure in tasks:
            continue
        for metric in _METRICS.get(cell.key.measure, ()):
            own = [s for s in cell.scores if s.metric == metric and not _part(s)]
            if len(own) > 1 and metric == "robust_accuracy":
                named = [(f"{s.condition['norm']} {s.condition['eps']}", s) for s in own]
            else:
                score = overall(cell, metric)
                named = [(metric.replace("_", " "), score)] if score else []
            where = f"{cell.key.measure} on {cell.key.data}"
            found += [(f"{words}, {where}", _point(cell, score)) for words, score in named]
    return found


def _over_tasks(results: Sequence[CellResult]) -> list[tuple[str, _Point]]:
    swept = {cell.key.model: cell for cell in results if cell.key.sweep}
    found = []
    for table in task_tables(results):
        for row in table.rows:
            if row.mean and row.model in swept:
                found.append((_name(table), _point(swept[row.model], row.mean)))
    return found


def _name(table: TaskTable) -> str:
    return f"{table.metric.replace('_', ' ')}, mean of {len(table.tasks)} tasks"


def _point(cell: CellResult, score: Score) -> _Point:
    ((key, value),) = cell.key.sweep.items()
    entry = Variant(cell.key.entry, cell.key.training_seed).label
    return _Point(entry, key, value if isinstance(value, int | float) else str(value), score)


def _part(score: Score) -> bool:
    return bool({"class", "severity", "corruption", "turn"} & score.condition.keys())


def _chart(key: str, found: dict[str, list[_Point]]) -> Markup:
    values = list(dict.fromkeys(point.value for points in found.values() for point in points))
    numbers = all(isinstance(value, int | float) for value in values)
    places = {v: float(v) if numbers else float(at) for at, v in enumerate(values)}
    drawn = {
        name: sorted(
            Spot(places[p.value], p.score.value, p.score.ci_low, p.score.ci_high,
                 f"{name}, {key} {p.value}: {format_score(p.score)}")
            for p in points
        )
        for name, points in list(found.items())[:8]
    }  # fmt: skip
    marks = sorted((place, str(value)) for value, place in places.items())
    return Markup(lines(drawn, across=key, up="score", marks=marks, width=820).inline())
