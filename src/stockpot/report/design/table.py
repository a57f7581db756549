"""Tables that sort, filter, search, fit into their page, and come out as CSV.

Numbers stand above their intervals, so that columns are narrow. Where there still is no room,
columns that may fold are folded away behind a button, and on a phone every row is a card.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from markupsafe import Markup, escape

from stockpot.report.design.frame import environment
from stockpot.results.headline import format_value
from stockpot.results.schema import Score


class Cell(NamedTuple):
    """One entry: how it is written, and what it is."""

    text: str = "-"
    value: float | str | None = None
    """By what it sorts and what the CSV holds; the text where there is none."""
    low: float | None = None
    high: float | None = None
    """The ends of its interval, for the CSV."""
    detail: str = ""
    """A smaller line below, such as the interval."""
    title: str = ""
    """Said when the pointer rests on it."""
    best: bool = False
    """Best of its column beyond noise."""
    share: float | None = None
    """0 to 1: how far its ground is filled."""
    tone: Literal["good", "bad", "flat"] = "good"
    """With which colour."""
    link: str = ""
    mark: str = ""
    """A class of its own, for a page's style or script."""
    html: Markup | None = None
    """Shown in place of the text, which then is for sorting and the CSV."""


class Column(NamedTuple):
    """What stands above a column."""

    title: str
    number: bool = True
    note: str = ""
    """Said when the pointer rests on the title."""
    group: str = ""
    """A heading above neighbours of the same group, such as the measure."""
    fold: int = 0
    """0 stays; where there is no room, those with the highest number are folded away first."""
    filter: bool = False
    """Offer its different texts as a choice above the table."""
    key: str = ""
    """Its name in links; from the title unless given."""


_MOST_PRINTED, _MOST_HEAT = 8, 26
"""Columns that fit side by side on a sheet of paper."""


class _Group(NamedTuple):
    title: str
    span: int


def table(
    name: str,
    columns: Sequence[Column | str],
    rows: Sequence[Sequence[Cell | str]],
    *,
    caption: str = "",
    search: bool | None = None,
    stack: bool = True,
    heat: bool = False,
    csv: bool = True,
    sort: str = "",
    most: int = 0,
) -> Markup:
    """A table as a part of a page; the first column names its rows.

    Args:
        name: unlike all others of the page; in links (`#?NAME.sort=...`) and of the CSV file.
        columns: what stands above; a plain text is a column of text.
        rows: a cell for each column; a plain text is a cell with that text.
        caption: above the table.
        search: offer a field to search in; from eight rows on unless said.
        stack: on a phone a row is a card; else the table scrolls in its own box.
        heat: cells are narrow and filled to their edges.
        csv: offer it as a CSV file.
        sort: the key of the column that the rows are sorted by, which is shown; a `-` before it
            says falling.
        most: rows that are shown before a button is asked for the others; 0 shows all.
    """
    heads = [Column(c, number=False) if isinstance(c, str) else c for c in columns]
    body = [[Cell(c) if isinstance(c, str) else c for c in row] for row in rows]
    wide = len(heads) > (_MOST_HEAT if heat else _MOST_PRINTED)
    values = {
        "name": slug(name),
        "caption": caption,
        "heads": list(zip(_keys(heads), heads, strict=True)),
        "groups": _groups(heads),
        "body": Markup("\n".join(_row(heads, row, labels=stack or wide) for row in body)),
        "count": len(body),
        "search": len(body) >= 8 if search is None else search,
        "filters": [_choices(heads, body, at) for at, head in enumerate(heads) if head.filter],
        "stack": stack,
        "heat": heat,
        "csv": csv,
        "sort": sort.removeprefix("-"),
        "falling": sort.startswith("-"),
        "wide": wide,
        "most": most if len(body) > most else 0,
    }
    return Markup(environment().get_template("table.html.j2").render(values))


def score_cell(
    score: Score | None, *, best: bool = False, title: str = "", share: bool = False
) -> Cell:
    """A score with its interval below it; a dash where there is none."""
    if score is None:
        return Cell("-", title=title or "not measured")
    text = format_value(score.value, score.unit)
    ends = score.ci_low, score.ci_high
    detail = ""
    if ends[0] is not None and ends[1] is not None and score.n > 1:
        low, high = (format_value(end, score.unit, bare=True) for end in ends if end is not None)
        detail = f"{low} to {high}"
    said = title or f"n = {score.n:,}"
    return Cell(text, score.value, *ends, detail, said, best,
                score.value if share else None)  # fmt: skip


def slug(words: str) -> str:
    """Words as a name for links: small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "x"


def _keys(heads: Sequence[Column]) -> list[str]:
    """A name for each column that no other has."""
    found: list[str] = []
    for head in heads:
        key = plain = head.key or slug(f"{head.group} {head.title}")
        number = 2
        while key in found:
            key, number = f"{plain}-{number}", number + 1
        found.append(key)
    return found


def _groups(heads: Sequence[Column]) -> list[_Group]:
    """Neighbours of one group together; nothing where no column has one."""
    if not any(head.group for head in heads):
        return []
    found: list[_Group] = []
    for head in heads:
        if found and found[-1].title == head.group:
            found[-1] = found[-1]._replace(span=found[-1].span + 1)
        else:
            found.append(_Group(head.group, 1))
    return found


def _row(heads: Sequence[Column], cells: Sequence[Cell], *, labels: bool) -> str:
    """One row; not a template's work, since a page may have a hundred thousand cells."""
    parts = []
    for at, (head, cell) in enumerate(zip(heads, cells, strict=True)):
        classes = "number" if head.number else ""
        more = ""
        if cell.best:
            classes += " best"
        if cell.share is not None:
            classes += f" shade {cell.tone}"
            more += f' style="--share:{min(1.0, max(0.0, cell.share)):.3f}"'
        if cell.mark:
            classes += f" {escape(cell.mark)}"
        if cell.value is not None:
            more += f' data-value="{_written(cell.value)}"'
        if cell.low is not None and cell.high is not None:
            more += f' data-low="{cell.low}" data-high="{cell.high}"'
        if cell.title:
            more += f' title="{escape(cell.title)}"'
        if labels and at:
            group = f", {head.group}" if head.group else ""
            more += f' data-label="{escape(head.title + group)}"'
        shown = str(escape(cell.text) if cell.html is None else cell.html)
        if cell.html is None and cell.link:
            shown = f'<a href="{escape(cell.link)}">{shown}</a>'
        small = f" <small>{escape(cell.detail)}</small>" if cell.detail else ""
        start, end = ("td", "td") if at else ('th scope="row"', "th")
        parts.append(f'<{start} class="{classes}"{more}>{shown}{small}</{end}>')
    return f"<tr>{''.join(parts)}</tr>"


def _written(value: float | str) -> str:
    return escape(value) if isinstance(value, str) else str(value)


def _choices(
    heads: Sequence[Column], rows: Sequence[Sequence[Cell]], at: int
) -> tuple[str, str, list[str]]:
    texts = list(dict.fromkeys(row[at].text for row in rows))
    return _keys(heads)[at], heads[at].title, texts
