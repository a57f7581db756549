"""`stockpot list KIND`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from stockpot.cli.options import AsJson, examples

NAME = "list"
EXAMPLES = examples(
    "stockpot list fusers",
    "stockpot list datasets --json",
)


def command(
    kind: Annotated[str, typer.Argument(help="datasets, measures, fusers, hardeners, zoo, ...")],
    as_json: AsJson = False,
) -> None:
    """List what there is of a kind."""
    from stockpot.kinds import KINDS, listings

    if kind == "zoo":
        rows = _zoo_rows()
    elif kind in KINDS:
        rows = [row._asdict() for row in listings(kind)]
    else:
        from stockpot.errors import UnknownNameError

        raise UnknownNameError("kind", kind, [*KINDS, "zoo"])
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    from stockpot.cli.console import table

    table(["name", "what it is"], [(row["name"], row["summary"]) for row in rows])


def _zoo_rows() -> list[dict[str, str]]:
    from stockpot.zoo import cards

    return [{"name": card.name, "summary": card.summary} for card in cards()]
