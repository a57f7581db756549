"""Tables as Markdown and CSV, and pages whose marked places they fill.

A place is marked `<!-- name -->` and ends at the next `<!-- end -->`, on lines of their own or in a
sentence. A sentence can also say what stands in a table of its page: the place
`<!-- table | row | column -->` is filled with that cell, so that words cannot differ from tables.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from stockpot.errors import UserError
from stockpot.files import csv_cell, csv_name, write_atomic
from stockpot.results.schema import CellResult, Score

Row = Mapping[str, object]


def markdown(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def escaped_markdown(text: str) -> str:
    """A text that stands in Markdown as it is, whatever a model or class is called: no markup, no
    HTML, no new cell of a table, and nobody is told of it by an @."""
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace("@", "&#64;")
    return re.sub(r"([\\`*_\[\]|~#])", r"\\\1", plain)


def csv_text(rows: Sequence[Row]) -> str:
    """Rows as CSV: all keys in order of appearance; what is missing stays empty."""
    stream = io.StringIO()
    columns = list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.DictWriter(stream, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: csv_cell(value) for key, value in row.items()} for row in rows)
    return stream.getvalue()


def read_csv(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a CSV file: numbers as numbers, and nothing where nothing stands."""
    with Path(path).open(encoding="utf-8", newline="") as stream:
        return [{key: _value(text) for key, text in row.items()} for row in csv.DictReader(stream)]


def _value(text: str) -> str | float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return csv_name(text)


def fill(page: str | Path, tables: Mapping[str, str]) -> None:
    """Put each text into the place of its name, and leave the rest of the page as it is."""
    path = Path(page)
    write_atomic(path, filled(path.read_text(encoding="utf-8"), tables, str(path)))


def filled(text: str, tables: Mapping[str, str], page: str = "the page") -> str:
    """The text of a page with these tables in their places, and with its cells in sentences."""
    for name, table in tables.items():
        mark = re.compile(rf"(<!-- {re.escape(name)} -->)(\n?).*?(<!-- end -->)", re.DOTALL)
        text, places = mark.subn(partial(_put, table), text)
        if not places:
            raise UserError(
                f"{page} has no place for {name!r}.",
                hint=f"Write <!-- {name} --> and <!-- end -->, on lines of their own or in a "
                "sentence.",
            )
    return _CELL.sub(lambda place: f"{place[1]}{_cell(text, place[2], page)}{place[3]}", text)


def _put(table: str, place: re.Match[str]) -> str:
    return f"{place[1]}{place[2]}{table}{place[2]}{place[3]}"


_CELL = re.compile(r"(<!-- ([^>|\n]+ \| [^>|\n]+ \| [^>\n]+) -->)[^<]*(<!-- end -->)")


def _cell(text: str, name: str, page: str) -> str:
    """A cell of a table of this page, by table, row, column, and the item where it lists several.

    Rows, columns and items are told by how they begin; a row by several of its cells, with `&`.
    What is called so as a whole comes before what begins so.
    """
    place, row, column, *item = (part.strip() for part in name.split("|"))
    found = re.search(rf"<!-- {re.escape(place)} -->\n(.*?)<!-- end -->", text, re.DOTALL)
    lines = [line for line in (found[1] if found else "").splitlines() if line.startswith("|")]
    split = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    header, body = (split[0], split[2:]) if split else ([], [])
    for key in row.split("&"):
        body = [line for line in body if any(_begins(cell, key) for cell in line)]
    whole = [line for line in body if any(_plain(cell) == row for cell in line)]
    columns = [at for at, title in enumerate(header) if _begins(title, column)]
    named = [at for at in columns if _plain(header[at]) == column]
    cells = [line[at] for line in whole or body for at in named or columns]
    for key in item:
        parts = [part for cell in cells for part in cell.split("; ") if _begins(part, key)]
        cells = [_plain(part)[len(key) :].strip() for part in parts]
    if len(cells) != 1:
        raise UserError(
            f"{page} asks for one cell {name!r} and has {len(cells)}.",
            hint="Name a table, and how its row and column begin: table | row | column.",
        )
    return cells[0]


def _plain(cell: str) -> str:
    return cell.replace("`", "").replace("*", "")


def _begins(cell: str, key: str) -> bool:
    return f"{_plain(cell)} ".startswith(f"{key.strip()} ")


def overall(cell: CellResult, metric: str) -> Score | None:
    """A cell's score of all images together, if it has it."""
    single = {"class", "turn", "severity", "corruption", "group", "perturbation", "factor"}
    found = (s for s in cell.scores if s.metric == metric and not single & s.condition.keys())
    return next(found, None)


def score_row(cell: CellResult, metrics: Iterable[str]) -> dict[str, float | None]:
    """Scores of all images together as columns: each metric, its `_low` and its `_high` end."""
    found: dict[str, float | None] = {}
    for metric in metrics:
        if score := overall(cell, metric):
            ends = {f"{metric}_low": score.ci_low, f"{metric}_high": score.ci_high}
            found |= {metric: score.value} | ends
    return found


def percents(score: Score | None, *, interval: bool = True) -> str:
    """A score in percent, with its interval where it has one; a dash where there is none."""
    if score is None:
        return "-"
    low, high = (score.ci_low, score.ci_high) if interval else (None, None)
    return percent(score.value, low, high)


def percent(value: float, low: float | None = None, high: float | None = None) -> str:
    """A share in percent, and its interval."""
    ends = "" if low is None or high is None else f" [{100 * low:.1f}, {100 * high:.1f}]"
    return f"{100 * value:.1f}{ends}"
