"""Models x tasks and models x corruptions, as sections of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from stockpot.charts import Mark, whiskers
from stockpot.report.design import Cell, Column, table
from stockpot.results.headline import format_score
from stockpot.results.schema import CellResult, Score
from stockpot.results.score_tables import TaskRow, corruption_means, task_tables
from stockpot.results.summary.best import Entrant, best_beyond_noise

_TITLES = {"clean": "Accuracy on every task", "corruption": "Accuracy under corruption"}


class TaskSection(NamedTuple):
    """A table with models down and tasks (or corruptions) across, and the chart of its means."""

    title: str
    note: str
    table: Markup
    chart: Markup | None


def task_sections(results: Sequence[CellResult]) -> list[TaskSection]:
    """Every table of models x tasks that the results allow, best mean first."""
    sections = []
    for found in task_tables(results):
        rows = sorted(found.rows, key=lambda row: -(row.mean.value if row.mean else -1.0))
        sections.append(
            TaskSection(
                _TITLES[found.measure],
                f"{len(found.tasks)} tasks; the mean is over tasks, its 95 % interval from theirs.",
                _table(
                    f"tasks-{found.measure}",
                    ["mean", *found.tasks],
                    [TaskRow(r.model, [r.mean, *r.scores], None) for r in rows],
                ),
                _chart(rows),
            )
        )
    if means := corruption_means(results):
        sections.append(
            TaskSection(
                "Accuracy by corruption and severity",
                f"Each number is the mean over {len(means.tasks)} tasks: {', '.join(means.tasks)}.",
                _table(
                    "tasks-by-corruption",
                    [f"{n.replace('_', ' ')} {s:g}" for n, s in means.conditions],
                    means.rows,
                ),
                None,
            )
        )
    return sections


def _table(name: str, columns: Sequence[str], rows: Sequence[TaskRow]) -> Markup:
    """Many narrow columns: a heat map, whose numbers say their interval when pointed at."""
    scores = list(zip(*(row.scores for row in rows), strict=True))
    best = [
        best_beyond_noise({row.model: Entrant(s) for row, s in zip(rows, column, strict=True) if s})
        for column in scores
    ]
    body = [
        [Cell(row.model), *(_cell(s, row.model == top) for s, top in zip(row.scores, best,
                                                                         strict=True))]
        for row in rows
    ]  # fmt: skip
    heads = [Column("model", number=False),
             *(Column(column, fold=max(0, place - 7)) for place, column in enumerate(columns))
             ]  # fmt: skip
    return table(name, heads, body, heat=True)


def _cell(score: Score | None, best: bool) -> Cell:
    if score is None:
        return Cell()
    title = f"{format_score(score)}, n = {score.n:,}"
    return Cell(f"{100 * score.value:.1f}", score.value, score.ci_low, score.ci_high, "", title,
                best, score.value)  # fmt: skip


def _chart(rows: Sequence[TaskRow]) -> Markup | None:
    points = [
        Mark(row.model, mean.value, mean.ci_low, mean.ci_high, format_score(mean))
        for row in rows
        if (mean := row.mean) and mean.ci_low is not None and mean.ci_high is not None
    ]
    return Markup(whiskers(points).inline()) if points else None
