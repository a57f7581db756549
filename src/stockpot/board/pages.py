"""The pages of a leaderboard: the index, one for each board, one for each model."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence

from markupsafe import Markup

from stockpot.board.badges import badge
from stockpot.board.boards import Board, Row, facets
from stockpot.board.gather import Contender
from stockpot.board.versions import Version
from stockpot.report.design import Cell, Column, render_page, score_cell, table
from stockpot.results.headline import format_score, format_value
from stockpot.results.trust import audited_notes

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
    for place, (board, _) in enumerate(ranked):
        head = board.columns[board.main].title
        # The later boards fold first.
        columns.append(
            Column(head, group=board.title, note=board.convention, fold=place, key=board.slug)
        )
    rows: list[list[Cell | str]] = []
    for one in models:
        cells: list[Cell | str] = [
            Cell(one.name, link=f"models/{one.slug}.html"),
            audited(one),
            signed(one),
            _parameters(one),
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
                _place(row),
                *(
                    score_cell(score, best=at == board.main and is_first(board, row))
                    for at, score in enumerate(row.scores)
                ),
                _parameters(row.contender),
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


def is_first(board: Board, row: Row) -> bool:
    """Whether it is better than all others beyond noise; alone there is nobody to beat."""
    return row.rank == (1, 1) and len(board.rows) > 1


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
            _place(row),
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


def _ranked_cell(board: Board, row: Row) -> Cell:
    score = row.scores[board.main]
    assert score is not None
    return Cell(
        format_value(score.value, score.unit, bare=True),
        score.value,
        score.ci_low,
        score.ci_high,
        title=f"{format_score(score)}, place {_place(row).text} of {len(board.rows)}",
        best=is_first(board, row),
    )


def _place(row: Row) -> Cell:
    if row.rank is None:
        return Cell("-")
    best, worst = row.rank
    return Cell(str(best) if best == worst else f"{best}–{worst}", best + worst / 1e4)


def _parameters(one: Contender) -> Cell:
    count = one.facts.parameters
    return Cell(format_value(count, "count"), count) if count else Cell("-")


def audited(one: Contender) -> str:
    """The verdict on a model in a word."""
    return one.audit or "none"


def signed(one: Contender) -> str:
    """Whether its results are."""
    return "yes" if one.keys and not one.unsigned else "in part" if one.keys else "no"


def _picture(svg: str) -> str:
    return f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"
