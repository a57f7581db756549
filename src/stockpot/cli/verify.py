"""`stockpot verify DIR`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stockpot.cli.options import examples

NAME = "verify"
EXAMPLES = examples(
    "stockpot verify runs/board",
    "stockpot verify runs/board --key 3b6a27bcceb6a42d62a3a8d02a6f0d73... --board",
)


def command(
    folder: Annotated[Path, typer.Argument(help="A signed folder.")],
    key: Annotated[str | None, typer.Option("--key", help="Who must have signed: hex.")] = None,
    board: Annotated[bool, typer.Option("--board", help="Fail where a rule is broken.")] = False,
    validity: Annotated[
        float, typer.Option("--min-validity", min=0, max=1, help="The least validation rate.")
    ] = 0.5,
) -> None:
    """Check that nothing changed since a folder was signed, and which rules of a board hold."""
    from stockpot.errors import UserError
    from stockpot.measure.dynamic.board import rulings
    from stockpot.results.signing import verify
    from stockpot.results.store import load_results

    signed = verify(folder, key)
    typer.echo(f"unchanged: {signed.files} files, signed by the key {signed.key}")
    found = rulings(load_results(folder), validity)
    for each in found:
        told = "holds" if each.holds else f"broken: {each.why}"
        typer.echo(f"{each.model}: {each.rule} {told}")
    broken = [each.rule for each in found if not each.holds]
    if board and (broken or not found):
        what = ", ".join(dict.fromkeys(broken)) or "there is no dynamic evaluation"
        raise UserError(f"{folder} does not meet the rules of a board: {what}.")
