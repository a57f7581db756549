"""`leaderboard`: folders of results in, a site of static files out.

SITE/index.html                 all boards, all models
SITE/boards/ID.html             one dataset, threat and convention
SITE/models/ID.html             one model
SITE/badges/MODEL/BOARD.svg     its score as a picture
SITE/leaderboard.json           all of it as data; leaderboard.schema.json is its schema
SITE/csv/results-vN.csv         every number of version N; versions.json lists them
SITE/CITATION.cff               how to cite the last version
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stockpot.board.boards import Board, Row, boards, refuse_several
from stockpot.board.document import Document, csv_rows, listed_board, listed_model, schema_text
from stockpot.board.gather import Contender, gather
from stockpot.board.index import index_page
from stockpot.board.pages import badge_of, board_page, model_page
from stockpot.board.versions import Version, citation, release
from stockpot.errors import UserError
from stockpot.files import write_atomic
from stockpot.results.tables import csv_text
from stockpot.stages import stage

DOCUMENT = "leaderboard.json"
_OURS = {"boards": "*.html", "models": "*.html", "badges": "*/*.svg"}


@dataclass(frozen=True)
class Site:
    """What was built."""

    folder: Path
    boards: list[Board]
    models: list[Contender]
    version: Version


@contextmanager
def _nothing_to_collect() -> Iterator[None]:
    """Millions of values are made and all are kept: looking for garbage among them again and again
    would take nearly half of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@_nothing_to_collect()
def leaderboard(
    folders: Sequence[str | Path],
    out: str | Path,
    *,
    title: str = "Leaderboard",
    one_convention: bool = False,
    url: str = "",
    index: str | Path | None = None,
) -> Site:
    """Build the site of all results in these folders; files of it that are there are replaced.

    Args:
        folders: run folders, or folders of them; each may hold a `submission.yaml`.
        out: the folder of the site.
        title: of the site.
        one_convention: refuse results whose conventions differ, rather than give each its board.
        url: where the site will be found, for its citation.
        index: an index of results to read instead of the files; without folders, all of it.
    """
    site = Path(out)
    if site.exists() and not (site / DOCUMENT).is_file() and any(site.iterdir()):
        raise UserError(
            f"{site} holds something else than a leaderboard.", hint="Give a new folder."
        )
    with stage("load"):
        models = gather(folders, index)
    with stage("score"):
        found = boards(models)
    if not found:
        raise UserError("none of these results has a score that a board could show.")
    if one_convention:
        refuse_several(found)
    with stage("make"):
        rows = csv_rows(found)
        date = max(cell.provenance.created for one in models for cell in one.cells)
        released = release(site, csv_text(rows), date=date, rows=len(rows), models=len(models))
        last = released.versions[-1]
        document = Document(
            title=title,
            version=last.version,
            results=last.file,
            sha256=last.sha256,
            date=date,
            boards=[listed_board(board) for board in found],
            models=[listed_model(one) for one in models],
        )
        authors = list(dict.fromkeys(name for one in models for name in one.authors))
        files = _pages(title, found, models) | released.files
        files["leaderboard.schema.json"] = schema_text()
        files["CITATION.cff"] = citation(title, last, authors, url)
        files["index.html"] = index_page(title, found, models, released.versions)
    with stage("write"):
        _write(site, files)
        write_atomic(site / DOCUMENT, document.model_dump_json(indent=1) + "\n")
    return Site(site, found, models, last)


def _pages(title: str, found: Sequence[Board], models: Sequence[Contender]) -> dict[str, str]:
    standing: dict[str, list[tuple[Board, Row]]] = {one.slug: [] for one in models}
    files = {}
    for board in found:
        files[f"boards/{board.slug}.html"] = board_page(title, board)
        for row in board.rows:
            standing[row.contender.slug].append((board, row))
            # Of several answers of one model the best, which comes first, has the badge.
            place = f"badges/{row.contender.slug}/{board.slug}.svg"
            files.setdefault(place, badge_of(board, row))
    for one in models:
        files[f"models/{one.slug}.html"] = model_page(title, one, standing[one.slug])
    return files


def _write(site: Path, files: Mapping[str, str]) -> None:
    """All files are made before the first is written; what an earlier site had more of goes."""
    try:
        for folder in {(site / name).parent for name in files}:
            folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            path, data = site / name, text.encode()
            # Thousands of small files that can be made again: the document alone is synced.
            if not path.is_file() or path.read_bytes() != data:
                path.write_bytes(data)
        for kind, pattern in _OURS.items():
            for path in (site / kind).glob(pattern):
                if path.relative_to(site).as_posix() not in files:
                    path.unlink()
    except OSError as problem:
        raise UserError(f"cannot write {site}: {problem.strerror or problem}.") from problem
