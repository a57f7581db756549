"""The opening of the page: a row for each model, what is best beyond noise, what to mind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from stockpot.report.design import Cell, Column, score_cell, table
from stockpot.report.design.table import slug
from stockpot.results.headline import format_value
from stockpot.results.schema import CellResult, Score
from stockpot.results.summary.cautions import cautions
from stockpot.results.summary.models import Summary, SummaryColumn, summary

_WIDE, _HIGH = 84, 9


class SummarySection(NamedTuple):
    """A table and a few sentences."""

    table: Markup
    said: list[str]
    about: str
    """What the columns are."""
    missing: str
    warnings: list[str]


def summary_section(results: Sequence[CellResult]) -> SummarySection:
    """From all results of the page."""
    found = summary(results)
    columns = [
        Column("model", number=False),
        *(
            Column(column.title, note=column.about, fold=max(0, place - 5))
            for place, column in enumerate(found.columns)
        ),
    ]
    rows = [
        [Cell(model), *(_cell(column, model) for column in found.columns)] for model in found.models
    ]
    missing = f"Not measured: {', '.join(found.missing)}." if found.missing else ""
    return SummarySection(
        table("summary-table", columns, rows, sort=_sorted(found), most=60),
        [sentence for column in found.columns if (sentence := _sentence(column))],
        "; ".join(f"{column.title}: {column.about}{_more(column)}" for column in found.columns),
        missing,
        cautions(results, found),
    )


def _more(column: SummaryColumn) -> str:
    return f" ({column.left_out} further ways in the tables below)" if column.left_out else ""


def _sorted(found: Summary) -> str:
    """Rows come by the first column, the best first."""
    if not found.columns:
        return ""
    falling = next(iter(found.columns[0].scores.values())).higher_is_better
    return f"{'-' if falling else ''}{slug(found.columns[0].title)}"


def _cell(column: SummaryColumn, model: str) -> Cell:
    score = column.scores.get(model)
    if score is None:
        return Cell("-", title=f"{model} was not measured: {column.about}")
    plain = score_cell(score, best=model == column.best, title=column.about)
    told = f" ({column.said[model]})" if model in column.said else ""
    shown = escape(plain.text) + _whisker(score, list(column.scores.values()))
    return plain._replace(html=shown, detail=plain.detail + told)


def _whisker(score: Score, others: Sequence[Score]) -> Markup:
    """The interval as a line and the value as a dot, on an axis that the column shares."""
    if score.ci_low is None or score.ci_high is None or score.n <= 1:
        return Markup("")
    ends = [
        end for one in others for end in (one.ci_low, one.ci_high, one.value) if end is not None
    ]
    low, high = min(ends), max(ends)

    def x(value: float) -> float:
        return 3 + (value - low) / max(high - low, 1e-12) * (_WIDE - 6)

    y = _HIGH / 2
    return Markup(
        f'<svg class="whisker" viewBox="0 0 {_WIDE} {_HIGH}" width="{_WIDE}" height="{_HIGH}" '
        f'aria-hidden="true"><line x1="{x(score.ci_low):.1f}" x2="{x(score.ci_high):.1f}" y1="{y}" '
        f'y2="{y}"/><circle cx="{x(score.value):.1f}" cy="{y}" r="3"/></svg>'
    )


def _sentence(column: SummaryColumn) -> str:
    """What the numbers of one column allow to say."""
    if len(column.scores) < 2:
        return ""
    first = next(iter(column.scores.values()))
    if first.higher_is_better is None:
        return ""
    sign = -1.0 if first.higher_is_better else 1.0
    ranked = sorted(column.scores, key=lambda model: sign * column.scores[model].value)
    title = column.title[0].upper() + column.title[1:]
    if column.best:
        best, second = column.scores[ranked[0]], column.scores[ranked[1]]
        ahead = abs(best.value - second.value)
        by = f"{100 * ahead:.1f} points" if best.unit == "fraction" else _plain(ahead, best)
        return f"{title}: {column.best} is best, {by} from {ranked[1]}, beyond noise."
    return f"{title}: no model is best beyond noise; {ranked[0]} and {ranked[1]} come first."


def _plain(value: float, score: Score) -> str:
    return format_value(value, score.unit)
