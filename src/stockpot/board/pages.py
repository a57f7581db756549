"""The pages of a leaderboard: one for each board, one for each model."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence

from markupsafe import Markup

from stockpot.board.badges import badge
from stockpot.board.boards import Board, Row, facets
from stockpot.board.gather import Contender
from stockpot.board.shown import audited, is_first, parameters, place, signed
from stockpot.report.design import Cell, Column, render_page, score_cell, table
from stockpot.results.headline import format_value
from stockpot.results.trust import audited_notes

_PACKAGE = "stockpot.board"


def board_page(title: str, board: Board) -> str:
    """One board."""
    return render_page(
        "board.html.j2",
        title=board.title,
        subtitle=f"Ranked by {board.columns[board.main].title}"
        + {True: ", higher is better.", False: ", lower is better.", None: "."}[
            board.higher_is_better
        ],
        facts=f"{len(board.rows)} answers on {board.data.n:,} images of {board.data.name}, "
        "95 % intervals",
        package=_PACKAGE,
        home=title,
        board=board,
        params=[(key, str(value)) for key, value in board.params.items() if value or value == 0],
        varies=[
            f"{name} ({', '.join(value or 'none' for value in values[:4])}"
            f"{', ...' if len(values) > 4 else ''})"
            for name, values in board.varies.items()
        ],
        table=_board_table(board),
    )


def _board_table(board: Board) -> Markup:
    columns = [
        Column("model", number=False),
        Column("place", note="The places that the intervals leave open"),
        *(
            Column(column.title, fold=0 if at == board.main else at + 1)
            for at, column in enumerate(board.columns)
        ),
        Column("parameters", fold=90),
        Column("architecture", number=False, filter=True, fold=91),
        Column("audit", number=False, filter=True),
        Column("signed", number=False, filter=True),
        *(Column(name, number=False, filter=True) for name in board.varies),
        Column("measured", number=False, fold=92),
    ]
    rows: list[list[Cell | str]] = []
    for row in board.rows:
        own = facets(row.cell)
        rows.append(
            [
                Cell(row.label, link=f"../models/{row.contender.slug}.html"),
                place(row),
                *(
                    score_cell(score, best=at == board.main and is_first(board, row))
                    for at, score in enumerate(row.scores)
                ),
                parameters(row.contender),
                row.contender.facts.architecture or "-",
                audited(row.contender),
                signed(row.contender),
                *(own[name] or "-" for name in board.varies),
                row.cell.provenance.created[:10] or "-",
            ]
        )
    return table(
        "board", columns, rows, search=True, sort="place" if board.rows[0].rank else "model"
    )


def model_page(title: str, one: Contender, standing: Sequence[tuple[Board, Row]]) -> str:
    """One model: where it stands on every board."""
    told = (note for cell in one.cells for note in audited_notes(cell, one.cells))
    notes = [*one.notes, *dict.fromkeys(told)]
    flags = dict.fromkeys(
        f"{cell.key.measure} on {cell.key.data}: {flag.name} ({flag.count} of {flag.of})"
        for cell in one.cells
        for flag in cell.flags
    )
    findings = [
        f"{finding.name}: {finding.verdict}. {finding.words}"
        for cell in one.cells
        for finding in cell.findings
        if finding.verdict != "cleared"
    ]
    return render_page(
        "model.html.j2",
        title=one.name,
        subtitle=one.about.notes,
        facts=f"on {len(standing)} boards; audit: {audited(one)}; signed: {signed(one)}",
        package=_PACKAGE,
        home=title,
        model=one,
        facts_of=_facts(one),
        links=[
            (name, link)
            for name, link in (
                ("paper", one.about.paper), ("code", one.about.code), ("weights", one.about.weights)
            ) if link
        ],
        notes=notes,
        flags=list(flags),
        findings=findings,
        table=_standing_table(one, standing),
        badges=[
            (board.slug, board.title, _picture(badge_of(board, row)))
            for board, row in standing[:12]
        ],
        more=max(0, len(standing) - 12),
    )  # fmt: skip


def badge_of(board: Board, row: Row) -> str:
    """The score that ranks, as a picture."""
    score = row.scores[board.main]
    assert score is not None
    return badge(
        f"{board.data.name} {board.threat}",
        f"{format_value(score.value, score.unit)}",
        good=row.rank[0] == 1 if row.rank and len(board.rows) > 1 else None,
    )


def _standing_table(one: Contender, standing: Sequence[tuple[Board, Row]]) -> Markup:
    columns = [
        Column("board", number=False),
        Column("data", number=False, filter=True, fold=2),
        Column("threat", number=False, filter=True, fold=1),
        Column("ranked by", number=False, fold=3),
        Column("score"),
        Column("place"),
        Column("of"),
        Column("badge", number=False, fold=4),
    ]
    rows: list[list[Cell | str]] = [
        [
            Cell(board.title, link=f"../boards/{board.slug}.html"),
            board.data.name,
            board.threat,
            board.columns[board.main].title,
            score_cell(row.scores[board.main], best=is_first(board, row)),
            place(row),
            Cell(str(len(board.rows)), len(board.rows)),
            Cell("SVG", link=f"../badges/{one.slug}/{board.slug}.svg"),
        ]
        for board, row in standing
    ]
    return table("standing", columns, rows, caption="Where it stands")


def _facts(one: Contender) -> list[tuple[str, str]]:
    known = {
        "authors": ", ".join(one.authors),
        "architecture": one.facts.architecture,
        "parameters": f"{one.facts.parameters:,}" if one.facts.parameters else "",
        "preprocessing": one.facts.preprocessing,
        "options": ", ".join(f"{key}={value}" for key, value in one.options.items()),
        "weights": one.facts.fingerprint,
        "additional data": {True: "yes", False: "no", None: ""}[one.about.additional_data],
        "trained on corruptions": ", ".join(one.facts.trained_on),
        "licence of the results": one.licence,
        "keys": ", ".join(one.keys),
    }
    return [(name, value) for name, value in known.items() if value]


def _picture(svg: str) -> str:
    return f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"
