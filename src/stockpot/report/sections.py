"""What a page says, worked out from result files: plain values for the template."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

from markupsafe import Markup

from stockpot.charts import Mark, whiskers
from stockpot.report.stages import in_words
from stockpot.results.headline import (
    Column,
    Shown,
    format_score,
    headline_columns,
    headline_rows,
    images_of,
    split_by_data,
)
from stockpot.results.schema import CellResult
from stockpot.results.score_tables import CorruptionTable, corruption_tables
from stockpot.results.statistics import paired_bootstrap
from stockpot.results.summary.notes import gathered_notes

_FEWEST = 3
"""Images per class, on average, from which on accuracy per class is worth a table."""

MOST_COMPARED = 12
"""With more models than this, each is compared with the best alone."""


class ScoreTable(NamedTuple):
    """Models down, scores across."""

    columns: list[Column]
    rows: dict[str, list[Shown]]


class Leaderboard(NamedTuple):
    """One dataset: its tables of models and the chart of their accuracy."""

    data: str
    facts: str
    tables: list[ScoreTable]
    chart: Markup | None
    notes: list[str]
    trained: set[str]
    """The models that were trained on corruptions that are measured here."""


class CorruptionSection(NamedTuple):
    """One dataset: a corruption x severity table for every model."""

    data: str
    tables: list[CorruptionTable]


class ClassTable(NamedTuple):
    """Accuracy of every class under every model."""

    data: str
    models: list[str]
    rows: list[tuple[str, int, list[tuple[str, str]]]]


class Comparison(NamedTuple):
    """Two models on the same images."""

    data: str
    better: str
    worse: str
    difference: str
    interval: str
    p_value: str
    clear: bool


def leaderboards(results: Sequence[CellResult]) -> list[Leaderboard]:
    """The headline scores, one table per dataset, best accuracy first."""
    boards = []
    for data, cells in split_by_data(results).items():
        # What a model costs stands in a table of its own, so that the scores fit on a page.
        groups = [
            [cell for cell in cells if (cell.key.measure == "cost") is costs]
            for costs in (False, True)
        ]
        tables = [_score_table(group) for group in groups if group]
        text = f"{images_of(cells)}; {cells[0].data.classes} classes"
        notes = gathered_notes(cells, results)
        trained = {table.model for table in corruption_tables(cells) if table.trained}
        chart = _accuracy_chart(tables[0])
        boards.append(Leaderboard(data, text, tables, chart, notes, trained))
    return boards


def _score_table(cells: Sequence[CellResult]) -> ScoreTable:
    columns = headline_columns(cells)
    rows = headline_rows(cells, columns)
    if columns and columns[0].metric == "accuracy":
        rows = dict(sorted(rows.items(), key=lambda item: -_value(item[1][0])))
    return ScoreTable(columns, rows)


def _value(shown: Shown) -> float:
    return shown.score.value if shown.score else -1.0


def _accuracy_chart(table: ScoreTable) -> Markup | None:
    points = []
    for model, row in table.rows.items():
        score = row[0].score if row else None
        if score and score.metric == "accuracy" and score.ci_low is not None:
            points.append(Mark(model, score.value, score.ci_low, score.ci_high or 1, row[0].text))
    return Markup(whiskers(points).inline()) if points else None


def corruption_sections(results: Sequence[CellResult]) -> list[CorruptionSection]:
    """Errors by corruption and severity, one table per model."""
    found = [
        CorruptionSection(data, corruption_tables(cells))
        for data, cells in split_by_data(results).items()
    ]
    return [section for section in found if section.tables]


def class_tables(results: Sequence[CellResult]) -> list[ClassTable]:
    """Per-class accuracy, hardest class first, where there are enough images to speak of it."""
    tables = []
    for data, cells in split_by_data(results).items():
        models: list[str] = []
        found: dict[str, dict[str, Any]] = {}
        for cell in cells:
            scores = [score for score in cell.scores if score.metric == "class_accuracy"]
            if scores:
                models.append(cell.key.model)
            for score in scores:
                found.setdefault(str(score.condition["class"]), {})[cell.key.model] = score
        counts = [next(iter(by_model.values())).n for by_model in found.values()]
        if not found or sum(counts) < _FEWEST * len(counts):
            continue
        rows = []
        for name, by_model in found.items():
            found_or_none = [by_model.get(model) for model in models]
            shown = [(format_score(s), filled(s.value)) if s else ("-", "") for s in found_or_none]
            mean = sum(score.value for score in by_model.values()) / len(by_model)
            count = next(iter(by_model.values())).n
            rows.append((mean, (name, count, shown)))
        ordered = [row for _, row in sorted(rows, key=lambda item: item[0])]
        tables.append(ClassTable(data, models, ordered))
    return tables


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
            low, high = pair.low, pair.high
            if pair.difference < 0:
                a, b, low, high = b, a, -high, -low
            found.append(
                Comparison(
                    data,
                    a,
                    b,
                    f"{100 * abs(pair.difference):+.1f}",
                    f"{100 * low:+.1f} to {100 * high:+.1f}",
                    f"{pair.p_value:.3f}" if pair.p_value >= 0.001 else "< 0.001",
                    low > 0,
                )
            )
    return found


def filled(value: float) -> str:
    """A style that fills a table's cell in proportion to a share; text stays readable."""
    return f"--share:{max(0.0, min(1.0, value)):.3f}"


def _pairs(cells: Sequence[CellResult]) -> list[tuple[CellResult, CellResult]]:
    """All pairs of a few models; of many, each with the best, or nobody could read the table."""
    if len(cells) <= MOST_COMPARED:
        return list(combinations(cells, 2))
    best = max(cells, key=lambda cell: cell.score("accuracy").value)
    return [(best, cell) for cell in cells if cell is not best]


def run_details(results: Sequence[CellResult]) -> list[dict[str, str]]:
    """Where each cell came from."""
    return [
        {
            "model": cell.key.model,
            "measure": cell.key.measure,
            "data": cell.key.data,
            "architecture": cell.model.architecture,
            "preprocessing": cell.model.preprocessing,
            "classes": cell.model.class_space,
            "words": cell.key.words,
            "convention": cell.convention,
            "parameters": ", ".join(f"{k}={v}" for k, v in cell.key.params.items()),
            "seed": str(cell.key.seed),
            "passes": str(cell.forward or ""),
            "n": f"{cell.data.n:,}",
            "data fingerprint": cell.data.fingerprint[:16],
            "model fingerprint": cell.model.fingerprint[:16],
            "time": f"{cell.cost.wall_seconds:.1f} s on {cell.cost.device}",
            "stages": in_words(cell.cost.stages),
            "code": _code(cell),
            "made": cell.provenance.created,
        }
        for cell in results
    ]


def _code(cell: CellResult) -> str:
    made = cell.provenance
    commit = f" ({made.commit[:10]}{', modified' if made.dirty else ''})" if made.commit else ""
    return f"stockpot {made.stockpot}{commit}, torch {made.torch}, Python {made.python}"
