"""Corruptions: a heat map of models x corruptions x severities, and accuracy over severity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from stockpot.charts import Spot, lines
from stockpot.report.design import Cell, Column, table
from stockpot.results.headline import format_score
from stockpot.results.schema import CellResult, Score
from stockpot.results.score_tables import CorruptionTable, corruption_tables
from stockpot.results.statistics import bootstrap_mean
from stockpot.results.summary.comparable import Comparable, comparable

_BESIDE = 4
"""Models side by side in one heat map; more follow below."""
_DRAWN = 8
"""Models in one chart: there are so many colours."""


class CorruptionSection(NamedTuple):
    """One comparable group: heat maps, and the curve of accuracy over severity."""

    title: str
    maps: list[Markup]
    curve: Markup | None
    trained: list[str]
    pictures: str
    """The name of the example pictures, where there are any."""


def corruption_sections(
    results: Sequence[CellResult], pictured: Mapping[str, str] | None = None
) -> list[CorruptionSection]:
    """One for every dataset and way in which corruptions were measured.

    Args:
        results: of the page.
        pictured: by the name of a dataset as results have it, that of its example pictures.
    """
    found = []
    for number, group in enumerate(comparable(results)):
        if tables := corruption_tables(group.cells):
            found.append(_section(f"corruption-{number}", group, tables, pictured or {}))
    return found


def _section(
    name: str, group: Comparable, tables: list[CorruptionTable], pictured: Mapping[str, str]
) -> CorruptionSection:
    maps = [
        _heat_map(f"{name}-{start // _BESIDE + 1}", tables[start : start + _BESIDE])
        for start in range(0, len(tables), _BESIDE)
    ]
    held: dict[str, list[str]] = {}
    for one in tables:
        if one.trained:
            held.setdefault(", ".join(map(_words, one.trained)), []).append(one.model)
    trained = [
        f"† Training held {names}, and so these numbers flatter {', '.join(models)}."
        for names, models in held.items()
    ]
    where = f"{group.data}, {group.cells[0].data.n:,} images"
    title = f"{where} ({group.apart})" if group.apart else where
    return CorruptionSection(
        title, maps, _curve(group.cells), trained, pictured.get(group.data, "")
    )


def _heat_map(name: str, tables: Sequence[CorruptionTable]) -> Markup:
    columns = [Column("corruption", number=False)]
    for one in tables:
        columns += [Column(f"{s:g}", group=one.model, key=f"{one.model}-{s:g}")
                    for s in one.severities]  # fmt: skip
        if _has_ratios(one):
            columns.append(Column("CE", group=one.model, note="error relative to the baseline's"))
    corruptions = list(dict.fromkeys(row[0] for one in tables for row in one.rows))
    rows = []
    for corruption in corruptions:
        cells = [Cell(_words(corruption))]
        for one in tables:
            cells += _cells(one, corruption)
        rows.append(cells)
    return table(name, columns, rows, heat=True, stack=False, search=False)


def _cells(one: CorruptionTable, corruption: str) -> list[Cell]:
    row = next((row for row in one.rows if row[0] == corruption), None)
    scores = [None] * len(one.severities) if row is None else row[1]
    mark = "†" if corruption in one.trained else ""
    cells = [
        _cell(one.model, corruption, severity, score, mark)
        for severity, score in zip(one.severities, scores, strict=True)
    ]
    if _has_ratios(one):
        ratio = row[2] if row else None
        shown = f"{100 * ratio.value:.0f}" if ratio else "-"
        cells.append(Cell(shown, ratio.value if ratio else None, mark="ratio",
                          title=format_score(ratio) if ratio else ""))  # fmt: skip
    return cells


def _cell(model: str, corruption: str, severity: float, score: Score | None, mark: str) -> Cell:
    if score is None:
        return Cell("-")
    said = (
        f"{model}, {_words(corruption)} {severity:g}: error {format_score(score)}, n = {score.n:,}"
    )
    html = Markup('<span data-picture="{}:{}">{}</span>').format(
        corruption, f"{severity:g}", f"{100 * score.value:.0f}{mark}"
    )
    return Cell(f"{100 * score.value:.0f}{mark}", score.value, score.ci_low, score.ci_high,
                title=said, share=score.value, tone="bad", html=html)  # fmt: skip


def _has_ratios(one: CorruptionTable) -> bool:
    return any(ratio is not None for _, _, ratio in one.rows)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _curve(cells: Sequence[CellResult]) -> Markup | None:
    """Mean accuracy over all corruptions at each severity, with that on the images as they are."""
    drawn = {}
    for cell in cells[:_DRAWN]:
        by_severity: dict[float, list[str]] = {}
        for name in cell.outcomes:
            corruption, _, severity = name.rpartition(":")
            if corruption and _is_number(severity):
                by_severity.setdefault(float(severity), []).append(name)
        if "correct" in cell.outcomes:
            by_severity[0.0] = ["correct"]
        if len(by_severity) < 3:
            continue
        drawn[cell.key.model] = [
            _spot(cell, severity, names) for severity, names in sorted(by_severity.items())
        ]
    if not drawn:
        return None
    up = "accuracy, mean over corruptions"
    return Markup(lines(drawn, across="severity (0 is clean)", up=up, width=760).inline())


def _spot(cell: CellResult, severity: float, names: Sequence[str]) -> Spot:
    right = np.mean([cell.outcome(name) for name in names], axis=0)
    interval = bootstrap_mean(right, groups=cell.image_groups)
    value = float(right.mean())
    said = (f"{cell.key.model}, severity {severity:g}: {100 * value:.1f} % "
            f"[{100 * interval.low:.1f}, {100 * interval.high:.1f}]")  # fmt: skip
    return Spot(severity, value, interval.low, interval.high, said)


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()
