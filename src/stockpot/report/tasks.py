"""Models x tasks, models x corruptions, and sweeps of a parameter, as sections of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from stockpot.charts import Mark, curve, whiskers
from stockpot.report.sections import filled
from stockpot.results.headline import format_score
from stockpot.results.schema import CellResult, Score
from stockpot.results.score_tables import TaskRow, corruption_means, task_tables
from stockpot.types import Variant

_TITLES = {"clean": "Accuracy on every task", "corruption": "Accuracy under corruption"}


class Entry(NamedTuple):
    """One number of a table: what is shown, what it says when pointed at, and its shade."""

    text: str
    title: str
    style: str
    value: float | None
    best: bool


class TaskSection(NamedTuple):
    """A table with models down and tasks (or corruptions) across, and the chart of its means."""

    title: str
    note: str
    columns: list[str]
    rows: list[tuple[str, list[Entry]]]
    chart: Markup | None


class SweepSection(NamedTuple):
    """The mean over tasks as one parameter of a fusion changes."""

    title: str
    chart: Markup


def task_sections(results: Sequence[CellResult]) -> list[TaskSection]:
    """Every table of models x tasks that the results allow, best mean first."""
    sections = []
    for table in task_tables(results):
        rows = sorted(table.rows, key=lambda row: -(row.mean.value if row.mean else -1.0))
        sections.append(
            TaskSection(
                _TITLES[table.measure],
                f"{len(table.tasks)} tasks; the mean is over tasks, its 95 % interval from theirs.",
                ["mean", *table.tasks],
                _entries([TaskRow(r.model, [r.mean, *r.scores], None) for r in rows]),
                _chart(rows),
            )
        )
    if means := corruption_means(results):
        sections.append(
            TaskSection(
                "Accuracy by corruption and severity",
                f"Each number is the mean over {len(means.tasks)} tasks: {', '.join(means.tasks)}.",
                [f"{name.replace('_', ' ')} {severity}" for name, severity in means.conditions],
                _entries(means.rows),
                None,
            )
        )
    return sections


def sweep_sections(results: Sequence[CellResult]) -> list[SweepSection]:
    """A curve for every fusion that was made with three or more values of one parameter."""
    sections = []
    swept = {cell.key.model: cell.key for cell in results if cell.key.sweep}
    for table in task_tables(results):
        groups: dict[tuple[str, str], list[Mark]] = {}
        for row in table.rows:
            found, mean = swept.get(row.model), row.mean
            if found and mean and mean.ci_low is not None and mean.ci_high is not None:
                ((key, value),) = found.sweep.items()
                point = Mark(str(value), mean.value, mean.ci_low, mean.ci_high)
                entry = Variant(found.entry, found.training_seed).label
                groups.setdefault((entry, key), []).append(point)
        for (name, key), points in groups.items():
            if len(points) >= 3:
                up = f"mean accuracy over {len(table.tasks)} tasks"
                title = f"{name}: {_TITLES[table.measure].lower()} by {key}"
                chart = Markup(curve(points, across=key, up=up).inline())
                sections.append(SweepSection(title, chart))
    return sections


def _entries(rows: Sequence[TaskRow]) -> list[tuple[str, list[Entry]]]:
    columns = list(zip(*(row.scores for row in rows), strict=True))
    tops = [max((s.value for s in column if s), default=None) for column in columns]
    return [
        (row.model, [_entry(s, top) for s, top in zip(row.scores, tops, strict=True)])
        for row in rows
    ]


def _entry(score: Score | None, top: float | None) -> Entry:
    if score is None:
        return Entry("-", "", "", None, False)
    title = f"{format_score(score)}, n = {score.n:,}"
    text = f"{100 * score.value:.1f}"
    return Entry(text, title, filled(score.value), score.value, score.value == top)


def _chart(rows: Sequence[TaskRow]) -> Markup | None:
    points = [
        Mark(row.model, mean.value, mean.ci_low, mean.ci_high, format_score(mean))
        for row in rows
        if (mean := row.mean) and mean.ci_low is not None and mean.ci_high is not None
    ]
    return Markup(whiskers(points).inline()) if points else None
