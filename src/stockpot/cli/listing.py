"""`stockpot list KIND`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from stockpot.cli.options import AsJson, examples

NAME = "list"
OURS = "stockpot"
EXAMPLES = examples(
    "stockpot list fusers",
    "stockpot list datasets --json",
)


def command(
    kind: Annotated[str, typer.Argument(help="datasets, measures, fusers, hardeners, zoo, ...")],
    as_json: AsJson = False,
) -> None:
    """List what there is of a kind."""
    from stockpot.cli.console import err
    from stockpot.registries import KINDS, registry

    if kind == "zoo":
        rows = _zoo_rows()
    elif kind in KINDS:
        found = registry(kind)
        rows = [row._asdict() for row in found.listings()]
        for problem in found.problems():
            err.print(f"warning: {problem}")
    else:
        from stockpot.errors import UnknownNameError

        raise UnknownNameError("kind", kind, [*KINDS, "zoo"])
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    from stockpot.cli.console import table

    plugged = any(row.get("origin", OURS) != OURS for row in rows)
    shown = ["name", "summary", "origin"] if plugged else ["name", "summary"]
    head = {"name": "name", "summary": "what it is", "origin": "from"}
    table([head[key] for key in shown], [[row[key] for key in shown] for row in rows])


def _zoo_rows() -> list[dict[str, str]]:
    from stockpot.zoo import cards

    return [{"name": card.name, "summary": card.summary} for card in cards()]
