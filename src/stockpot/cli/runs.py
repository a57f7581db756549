"""`stockpot runs list|show|prune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stockpot.cli.options import AsJson, examples
from stockpot.remote.address import shown

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List run folders, show what is in one, and remove what is stale.",
    epilog=examples(
        "stockpot runs list",
        "stockpot runs prune runs/demo --dry-run",
    ),
)
Folder = Annotated[Path, typer.Argument(help="A run folder, or its address in storage.")]


@app.command(
    "list",
    epilog=examples(
        "stockpot runs list",
        "stockpot runs list studies/runs --json",
    ),
)
def list_(
    folder: Annotated[Path, typer.Argument(help="Where the run folders lie.")] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """List runs: their recipe, and how many models and cells are present, missing or stale."""
    import json

    from stockpot.cli.console import table
    from stockpot.run.folder import runs_in

    rows = [
        {
            "run": str(run.folder),
            "recipe": run.manifest.recipe,
            "updated": run.manifest.updated,
            "models": run.number("model", "present"),
            "cells": run.number("cell", "present"),
            "missing": run.number("model", "missing") + run.number("cell", "missing"),
            "stale": run.number("model", "stale") + run.number("cell", "stale"),
        }
        for run in runs_in(folder)
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
    elif rows:
        table(list(rows[0]), [list(row.values()) for row in rows])
    else:
        typer.echo(f"no runs under {folder}")


@app.command(
    "show",
    epilog=examples(
        "stockpot runs show runs/demo",
        "stockpot runs show runs/demo --json",
    ),
)
def show(folder: Folder, as_json: AsJson = False) -> None:
    """Show the models and cells of a run: present, missing, or stale."""
    import json

    from stockpot.cli.console import table
    from stockpot.remote.working_copy import read_copy
    from stockpot.run.folder import contents

    items = contents(read_copy(folder))
    if as_json:
        rows = [item._asdict() | {"path": str(item.path)} for item in items]
        typer.echo(json.dumps(rows, indent=1))
        return
    table(["kind", "name", "state", "note"], [(i.kind, i.name, i.state, i.note) for i in items])


@app.command(
    "prune",
    epilog=examples(
        "stockpot runs prune runs/demo --dry-run",
        "stockpot runs prune runs/demo",
    ),
)
def prune_(
    folder: Folder,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
) -> None:
    """Remove the models and cells of a run that do not belong to its present recipe."""
    from stockpot.remote.working_copy import working_copy
    from stockpot.run.folder import prune

    with working_copy(folder) as place:
        gone = prune(place.folder, dry_run=dry_run)
    for item in gone:
        typer.echo(f"{'would remove' if dry_run else 'removed'} {place.shown(item.path)}")
    if not gone:
        typer.echo(f"{shown(folder)}: nothing is stale")
