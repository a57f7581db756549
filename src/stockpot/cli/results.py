"""`stockpot results index|query`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from stockpot.cli.options import examples
from stockpot.cli.profile import with_profile
from stockpot.remote.address import address

DEFAULT = "runs/index.db"  # as `open_index` has it, whose room imports numpy

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Bring results of many folders into an SQL index, and ask it.",
    epilog=examples(
        "stockpot results index runs/demo",
        "stockpot results query metric=accuracy",
    ),
)
Place = Annotated[
    str,
    typer.Option(
        "--index",
        metavar="FILE|URL",
        help="A SQLite file, or postgresql://user@host/database.",
    ),
]


class Format(StrEnum):
    """How an answer is printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


@app.command(
    "index",
    epilog=examples(
        "stockpot results index runs/demo runs/other",
        "stockpot results index runs --index postgresql://me@db.example/results",
        "stockpot results index --check",
    ),
)
@with_profile
def index_(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Run folders, or folders of them; by default those it knows."),
    ] = None,
    index: Place = DEFAULT,
    check: Annotated[
        bool, typer.Option("--check", help="Only say whether it is up to date; exit 1 if not.")
    ] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Make it anew from the files.")
    ] = False,
    forget: Annotated[
        bool, typer.Option("--forget", help="Take these folders out; their files stay.")
    ] = False,
) -> None:
    """Bring an index of results up to date with the files, which stay the truth.

    An index is made where there is none. `--check` compares the content of every file.
    """
    if check + rebuild + forget > 1:
        raise typer.BadParameter("give one of --check, --rebuild and --forget.")
    given = folders or []
    if forget and not given:
        raise typer.BadParameter("--forget: give the folders.")
    if check:
        _check(index, given)
        return
    from stockpot.results.index.open import open_index, rebuild_index

    if forget:
        with open_index(index, write=True) as opened:
            typer.echo(f"{opened.forget(*given)} cells forgotten")
        return
    if not given and not rebuild:
        open_index(index)  # there must be one, or nothing says of what to make it
    with rebuild_index(index, given) if rebuild else open_index(index, write=True) as opened:
        for folder, changes in () if rebuild else opened.update(*given).items():
            typer.echo(f"{folder}: {changes}")
        count = opened.query("SELECT count(*), count(DISTINCT folder) FROM cells").rows[0]
        typer.echo(f"{opened.place}: {count[0]} cells of {count[1]} folders")


@app.command(
    "query",
    epilog=examples(
        "stockpot results query metric=accuracy 'value>0.9'",
        "stockpot results query measure=corruption 'severity>=3' --columns model,corruption,value",
        'stockpot results query "SELECT model, max(value) FROM results GROUP BY model"',
    ),
)
@with_profile
def query(
    asked: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SELECT|FILTER...", help="One SELECT, or filters that must all hold."
        ),
    ] = None,
    index: Place = DEFAULT,
    format: Annotated[Format, typer.Option("--format", help="Of the answer.")] = Format.TABLE,
    columns: Annotated[
        str, typer.Option(help="Columns of an answer to filters, by comma; condition.NAME too.")
    ] = "",
    limit: Annotated[int | None, typer.Option(min=0, help="The most rows.")] = None,
) -> None:
    """Ask an index of results, by a SELECT on the view `results` or by filters on its columns.

    A filter is COLUMN=VALUE, also with != > < >= <= and ~ (contains). Nothing can be changed by
    what is asked.
    """
    from stockpot.results.index.open import open_index

    warn_if_behind(index)
    chosen = [name.strip() for name in columns.split(",") if name.strip()]
    with open_index(index) as opened:
        answer = opened.query(*(asked or ()), columns=chosen or None, limit=limit)
    if format is Format.JSON:
        import json

        typer.echo(json.dumps(answer.records(), indent=1))
    elif format is Format.CSV:
        from stockpot.results.tables import csv_text

        typer.echo(
            csv_text(answer.records()) if answer.rows else ",".join(answer.columns), nl=False
        )
    elif not answer.rows:
        typer.echo("no rows")
    else:
        from stockpot.cli.console import table

        table(answer.columns, [[_text(value) for value in row] for row in answer.rows])


def warn_if_behind(index: str, folders: Sequence[Path] = ()) -> None:
    """Say on the error stream that files say something else than an index."""
    from stockpot.cli.console import err
    from stockpot.results.index.open import open_index

    with open_index(index) as opened:
        if behind := opened.behind(*folders):
            err.print(f"warning: {_behind(behind, str(opened.place))}")


def _check(index: str, folders: Sequence[Path]) -> None:
    from stockpot.errors import UserError
    from stockpot.results.index.open import open_index

    with open_index(index) as opened:
        behind = opened.behind(*folders, thorough=True)
        away = [name for name in opened.folders if not (address(name) or Path(name).is_dir())]
        place = str(opened.place)
    for folder in away:
        typer.echo(f"{folder}: not on this machine, not checked")
    if behind:
        raise UserError(_behind(behind, place))
    typer.echo(f"{place}: up to date")


def _behind(behind: Mapping[str, object], place: str) -> str:
    said = "; ".join(f"{folder}: {changes}" for folder, changes in behind.items())
    return f"the index is behind its files ({said}): stockpot results index --index {place}"


def _text(value: object) -> str:
    """A value in a table; what would move the cursor of a terminal is written out."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value)
    )
