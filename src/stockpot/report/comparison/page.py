"""Two models side by side: what is better beyond noise, and where they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from stockpot.files import write_atomic
from stockpot.report.comparison.chart import Difference, differences
from stockpot.report.design import Cell, Column, render_page, table
from stockpot.results.compare import Compared, Comparison
from stockpot.results.paired.changes import Change, Changes
from stockpot.results.paired.words import (
    claim,
    correction,
    heading,
    p_text,
    place,
    points,
    summary,
    told_apart,
    word,
)

_TONES = {"better": "good", "not worse": "good", "held": "good", "worse": "bad"}


class Shown(NamedTuple):
    """A picture on which two models differ."""

    source: str
    """A data URI: the page stays one file."""
    words: str


Pictures = Mapping[tuple[int, str], Sequence[Shown]]
"""By place in `Comparison.changes` and the name of a change."""


class _Section(NamedTuple):
    title: str
    words: str
    table: Markup
    galleries: list[tuple[str, str, Sequence[Shown]]]


def comparison_page(
    found: Comparison, out: str | Path, *, title: str = "", pictures: Pictures | None = None
) -> Path:
    """Write a comparison as one self-contained page.

    Args:
        found: what `stockpot.compare` found.
        out: where to.
        title: of the page; who is compared with whom by default.
        pictures: images on which the two differ.
    """
    path = Path(out)
    write_atomic(path, comparison_text(found, title=title, pictures=pictures))
    return path


def comparison_text(found: Comparison, *, title: str = "", pictures: Pictures | None = None) -> str:
    """The page as text."""
    pairs = list(dict.fromkeys((row.first, row.second) for row in found.rows))
    named = ", ".join(f"{a} against {b}" for a, b in pairs[:3])
    more = f" and {len(pairs) - 3} more" if len(pairs) > 3 else ""
    counted = [f"{told} in {sum(word(row) == told for row in found.rows)}"
               for told in dict.fromkeys(map(word, found.rows))]  # fmt: skip
    few = len(found.rows) <= 6
    return render_page(
        "comparison.html.j2",
        title=title or f"{named}{more}",
        subtitle=f"A is {summary(found) if few else ', '.join(counted)}.",
        facts=f"{len(found.rows)} scores, {max(row.n for row in found.rows):,} images",
        package="stockpot.report.comparison",
        claim=claim(found),
        correction=correction(found),
        chart=Markup(_chart(found, len(pairs) > 1)),
        scores=_scores(found, len(pairs) > 1),
        sections=[
            _section(number, part, found.confidence, pictures or {})
            for number, part in enumerate(found.changes)
            if part.changes
        ],
        left_out=found.left_out,
    )


def _chart(found: Comparison, many: bool) -> str:
    marks = []
    for row in found.rows[:40]:
        who = f"{row.first}: " if many else ""
        text = f"{points(row.difference)}, {word(row)}"
        told = row.verdict != "not told apart"
        label = f"{who}{place(row)}"
        marks.append(Difference(label, row.difference, row.low, row.high, text, told))
    return differences(marks, margin=found.rows[0].margin).inline()


def _scores(found: Comparison, many: bool) -> Markup:
    columns = [
        Column("score", number=False),
        *([Column("A", number=False, filter=True), Column("B", number=False)] if many else []),
        Column("data", number=False, filter=True, fold=1),
        Column("measure", number=False, filter=True, fold=2),
        Column("A", key="a-value"),
        Column("B", key="b-value"),
        Column("A - B", note="In points, with its interval"),
        Column("A is", number=False, filter=True, note=correction(found)),
        Column("p", note="Among all rows: Holm's correction"),
        Column("images", fold=3, note="And the groups that they belong to, where there are any"),
    ]
    return table("scores", columns, [_score(row, many) for row in found.rows], caption=claim(found))


def _score(row: Compared, many: bool) -> list[Cell]:
    groups = f"{row.clusters:,} groups" if row.clusters != row.n else ""
    return [
        Cell(row.metric),
        *([Cell(row.first), Cell(row.second)] if many else []),
        Cell(row.data), Cell(row.measure),
        _share(row.a), _share(row.b), _difference(row),
        Cell(word(row), mark=_TONES.get(word(row), "")),
        Cell(p_text(row.p_adjusted), row.p_adjusted, title=f"alone {p_text(row.p_value)}"),
        Cell(f"{row.n:,}", row.n, detail=groups),
    ]  # fmt: skip


def _share(value: float) -> Cell:
    return Cell(f"{100 * value:.1f} %", value)


def _difference(row: Compared | Change) -> Cell:
    return Cell(points(row.difference), row.difference, row.low, row.high,
                f"{points(row.low)} to {points(row.high)}")  # fmt: skip


def _section(number: int, part: Changes, confidence: float, pictures: Pictures) -> _Section:
    told = [change for change in part.changes if told_apart(change, confidence)]
    what = "classes" if part.by == "class" else "conditions"
    words = (
        f"The largest changes of {part.of} {what}; "
        f"{len(told)} of those shown count among all of them."
    )
    among = f"Among all {part.of}, or among all rows where this is one of them: Holm's correction"
    columns = [
        Column(part.by, number=False), Column("A"), Column("B"), Column("A - B"),
        Column("A is", number=False), Column("p", note=among), Column("images"),
    ]  # fmt: skip
    rows = []
    for change in part.changes:
        better = "better" if change.difference > 0 else "worse"
        verdict = better if told_apart(change, confidence) else "not told apart"
        rows.append([
            Cell(change.name), _share(change.a), _share(change.b), _difference(change),
            Cell(verdict, mark=_TONES.get(verdict, "")),
            Cell(p_text(change.p_adjusted), change.p_adjusted), Cell(f"{change.n:,}", change.n),
        ])  # fmt: skip
    galleries = [
        (change.name, "A is right and B is not" if change.difference > 0
         else "B is right and A is not", pictures[number, change.name])
        for change in part.changes
        if pictures.get((number, change.name))
    ]  # fmt: skip
    return _Section(heading(part), words, table(f"changes-{number}", columns, rows), galleries)
