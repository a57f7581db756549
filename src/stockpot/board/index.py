"""The first page of a leaderboard: all boards, all models, the versions of the results."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from stockpot.board.boards import Board, Row
from stockpot.board.gather import Contender
from stockpot.board.shown import audited, is_first, parameters, place, signed
from stockpot.board.versions import Version
from stockpot.report.design import Cell, Column, render_page, score_cell, table
from stockpot.results.headline import format_score, format_value

_PACKAGE = "stockpot.board"


def index_page(
    title: str, found: Sequence[Board], models: Sequence[Contender], versions: Sequence[Version]
) -> str:
    """All boards, all models with the score that ranks on each, and the versions of the results."""
    return render_page(
        "index.html.j2",
        title=title,
        subtitle="Every board is one question: one dataset by its content, one threat, one "
        "convention. Places are ranges where intervals leave more than one open.",
        facts=_count(found, models, versions),
        package=_PACKAGE,
        boards=_boards_table(found),
        models=_models_table(found, models),
        versions=_versions_table(versions),
    )


def _count(found: Sequence[Board], models: Sequence[Contender], versions: Sequence[Version]) -> str:
    last = versions[-1]
    when = f", measured until {last.date[:10]}" if last.date else ""
    return f"{len(models)} models on {len(found)} boards; results version {last.version}{when}"


def _boards_table(found: Sequence[Board]) -> Markup:
    columns = [
        Column("board", number=False),
        Column("data", number=False, filter=True),
        Column("threat", number=False, filter=True),
        Column("models"),
        Column("images"),
        Column("first places", number=False, note="Models that may be first by their intervals"),
        Column("best"),
        Column("ranked by", number=False, fold=1),
        Column("convention", number=False, fold=2),
    ]
    rows: list[list[Cell | str]] = []
    for board in found:
        first = [row for row in board.rows if row.rank and row.rank[0] == 1]
        named = ", ".join(row.label for row in first[:3])
        more = f" and {len(first) - 3} more" if len(first) > 3 else ""
        best = board.rows[0].scores[board.main] if board.rows[0].rank else None
        rows.append(
            [
                Cell(board.title, link=f"boards/{board.slug}.html"),
                board.data.name,
                board.threat,
                Cell(str(len(board.rows)), len(board.rows)),
                Cell(f"{board.data.n:,}", board.data.n),
                Cell(named + more),
                score_cell(best),
                board.columns[board.main].title,
                board.convention,
            ]
        )
    return table("boards", columns, rows, caption="Boards")


def _models_table(found: Sequence[Board], models: Sequence[Contender]) -> Markup:
    columns = [
        Column("model", number=False),
        Column("audit", number=False, filter=True),
        Column("signed", number=False, filter=True),
        Column("parameters", fold=len(found) + 1),
    ]
    ranked = [(board, {row.contender.slug: row for row in reversed(board.rows)}) for board in found]
    for at, (board, _) in enumerate(ranked):
        head = board.columns[board.main].title
        # The later boards fold first.
        columns.append(
            Column(head, group=board.title, note=board.convention, fold=at, key=board.slug)
        )
    rows: list[list[Cell | str]] = []
    for one in models:
        cells: list[Cell | str] = [
            Cell(one.name, link=f"models/{one.slug}.html"),
            audited(one),
            signed(one),
            parameters(one),
        ]
        for board, own in ranked:
            row = own.get(one.slug)
            cells.append(_ranked_cell(board, row) if row else Cell("-", title="not measured"))
        rows.append(cells)
    return table("models", columns, rows, caption="Models", search=True, stack=False)


def _versions_table(versions: Sequence[Version]) -> Markup:
    columns = [
        Column("version"),
        Column("file", number=False),
        Column("date", number=False),
        Column("rows"),
        Column("models"),
        Column("sha256", number=False, fold=1),
    ]
    rows: list[list[Cell | str]] = [
        [
            Cell(f"v{one.version}", one.version),
            Cell(one.file.rpartition("/")[2], link=one.file),
            one.date[:10] or "-",
            Cell(f"{one.rows:,}", one.rows),
            Cell(str(one.models), one.models),
            Cell(f"{one.sha256[:12]}…", one.sha256, title=one.sha256),
        ]
        for one in reversed(versions)
    ]
    return table("versions", columns, rows, search=False)


def _ranked_cell(board: Board, row: Row) -> Cell:
    score = row.scores[board.main]
    assert score is not None
    return Cell(
        format_value(score.value, score.unit, bare=True),
        score.value,
        score.ci_low,
        score.ci_high,
        title=f"{format_score(score)}, place {place(row).text} of {len(board.rows)}",
        best=is_first(board, row),
    )
