"""`stockpot sign DIR`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stockpot.cli.options import examples

NAME = "sign"
EXAMPLES = examples(
    "stockpot sign runs/board --key me.pem --new-key",
    "stockpot sign runs/board --key me.pem",
)


def command(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    key: Annotated[Path, typer.Option("--key", help="A private Ed25519 key in PEM.")],
    new: Annotated[bool, typer.Option("--new-key", help="Make the key first.")] = False,
) -> None:
    """Sign the results of a folder and everything beside them (needs 'stockpot[sign]')."""
    from stockpot.results.signing import SIGNATURE, new_key, sign

    if new:
        new_key(key)
    signed = sign(folder, key)
    typer.echo(f"{folder / SIGNATURE}: {signed.files} files, signed by the key {signed.key}")
