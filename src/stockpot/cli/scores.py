"""Scores as tables on the terminal; apart from the console, which every command starts with."""

from __future__ import annotations

from collections.abc import Sequence

from stockpot.cli.console import out, table
from stockpot.results.headline import (
    format_score,
    headline_columns,
    headline_rows,
    images_of,
    split_by_data,
)
from stockpot.results.schema import CellResult, Score
from stockpot.results.score_tables import corruption_tables, detection_tables, task_tables
from stockpot.results.summary.comparable import Comparable, comparable
from stockpot.results.summary.notes import gathered_notes


def print_scores(results: Sequence[CellResult]) -> None:
    """A table for each measure of each dataset: models down, headline scores across.

    What cannot be compared stands in tables of its own; a star marks what is best beyond noise.
    """
    for data, cells in split_by_data(results).items():
        out.print()
        out.print(f"{data}: {images_of(cells)}, 95 % intervals, * best beyond noise")
        for group in comparable(cells):
            _print_group(group)
        for grid in corruption_tables(cells):
            out.print()
            table(
                ["corruption", *(f"severity {severity:g}" for severity in grid.severities), "CE"],
                [
                    [name, *(_short(score) for score in scores), _short(ratio)]
                    for name, scores, ratio in grid.rows
                ],
                title=f"{grid.model}: error in percent",
            )
        for found in detection_tables(cells):
            out.print()
            table(
                ["detector", *found.sets],
                [
                    [name, *(f"{_short(auroc)} ({_short(fpr)})" for auroc, fpr in scores)]
                    for name, scores in found.rows
                ],
                title=f"{found.model}: AUROC (FPR at 95 % TPR) in percent",
            )
        for note in gathered_notes(cells, results):
            out.print(f"note: {note}")
    print_task_tables(results)


def _print_group(group: Comparable) -> None:
    columns = headline_columns(group.cells)
    if not columns:
        return
    rows = [
        [model, *(f"{shown.text} *" if shown.best else f"{shown.text}  " for shown in row)]
        for model, row in headline_rows(group.cells, columns).items()
    ]
    out.print()
    title = f"{group.measure} ({group.apart})" if group.apart else group.measure
    table(["model", *(column.title for column in columns)], rows, title=title)


def print_task_tables(results: Sequence[CellResult]) -> None:
    """Models down, tasks across, and the mean over tasks; nothing where there is one dataset."""
    for found in task_tables(results):
        out.print()
        table(
            ["model", *found.tasks, "mean"],
            [
                [row.model, *map(_short, row.scores), format_score(row.mean) if row.mean else "-"]
                for row in found.rows
            ],
            title=f"{found.metric.replace('_', ' ')} in percent, the mean with its 95 % interval",
        )


def _short(score: Score | None) -> str:
    return "-" if score is None else f"{100 * score.value:.1f}"
