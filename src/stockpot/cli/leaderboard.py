"""`stockpot leaderboard DIR...`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stockpot.cli.options import ReadIndex, examples
from stockpot.stages import stage

NAME = "leaderboard"
EXAMPLES = examples(
    "stockpot leaderboard runs/a runs/b submissions/ -o site",
    "stockpot leaderboard --index runs/index.db -o site",
    "stockpot leaderboard --check submissions/mine",
    "stockpot leaderboard --template submissions/mine",
)


def command(
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Run folders, or folders of run folders.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The folder of the site.")] = None,
    title: Annotated[str, typer.Option(help="Of the site.")] = "Leaderboard",
    url: Annotated[str, typer.Option(help="Where it will be found, for its citation.")] = "",
    one_convention: Annotated[
        bool,
        typer.Option(
            "--one-convention",
            help="Refuse results of one dataset and threat that were measured in several ways.",
        ),
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Check submissions and build nothing.")
    ] = False,
    unsigned: Annotated[
        bool, typer.Option("--unsigned", help="With --check: a signature need not be there.")
    ] = False,
    template: Annotated[
        Path | None, typer.Option(help="Write a submission to begin with into this folder.")
    ] = None,
    index: ReadIndex = "",
) -> None:
    """Build a site of static files from the results of many folders, or check submissions.

    Each dataset, threat and convention has its own board: what was measured otherwise is never
    mixed in. A signature that is false stops the build.
    """
    if template is not None:
        from stockpot.board.template import write_template

        for path in write_template(template):
            typer.echo(str(path))
        return
    if not folders and (check or not index):
        raise typer.BadParameter("give folders with results, or --template FOLDER.")
    if check:
        _check(folders or [], signed=not unsigned)
        return
    if out is None:
        raise typer.BadParameter("give the folder of the site: -o SITE.")
    with stage("start"):
        from stockpot.board.site import leaderboard

    if index:
        from stockpot.cli.results import warn_if_behind

        warn_if_behind(index, folders or [])
    site = leaderboard(
        folders or [], out, title=title, one_convention=one_convention, url=url,
        index=index or None,
    )  # fmt: skip
    for board in site.boards:
        if board.differs:
            typer.echo(f"a board of its own: {board.title}")
    typer.echo(
        f"{len(site.models)} models on {len(site.boards)} boards, results version "
        f"{site.version.version}: {site.folder / 'index.html'}"
    )


def _check(folders: list[Path], *, signed: bool) -> None:
    from stockpot.board.check import check_submission
    from stockpot.errors import UserError
    from stockpot.results.store import run_folders

    broken = []
    for folder in run_folders(folders):
        for one in check_submission(folder, signed=signed):
            typer.echo(f"{folder}: {one.rule} {one.state}" + (f": {one.why}" if one.why else ""))
            if one.state == "broken":
                broken.append(f"{folder}: {one.rule}")
    if broken:
        raise UserError(f"not fit for a board: {'; '.join(broken)}.")
