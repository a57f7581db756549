"""`stockpot advise BASE MEMBER...`."""

from __future__ import annotations

from typing import Annotated

import typer

from stockpot.cli.options import AsJson, DataOptions, Split, examples, library_defaults

NAME = "advise"
LIBRARY = library_defaults("stockpot.advise.run:advise")
EXAMPLES = examples(
    "stockpot advise clip-base clip-cifar10 clip-mnist clip-fashion clip-quickdraw clip-icons",
    "stockpot advise icons-vit icons-vit-plain icons-vit-colour icons-vit-cutmix --data icons",
)


def command(
    base: Annotated[str, typer.Argument(help="What the members were tuned from.")],
    members: Annotated[list[str], typer.Argument(help="Checkpoints, as SOURCE or NAME=SOURCE.")],
    data: Annotated[
        str | None, typer.Option("--data", help="Labelled images, to look for barriers.")
    ] = None,
    split: Split = None,
    limit: Annotated[int, typer.Option(help="At most this many images.")] = LIBRARY.limit,
    data_option: DataOptions = None,
    as_json: AsJson = False,
) -> None:
    """Look at a pool before it is fused: what will work, what will not, why, and how to do it.

    Every piece of advice names the study of this project behind it, with its number.
    """
    from stockpot.advise.advice import COLUMNS
    from stockpot.advise.run import advise
    from stockpot.cli.console import table
    from stockpot.cli.options import key_values, named

    options = {"split": split, **key_values(data_option, "-d")}
    chosen = {key: value for key, value in options.items() if value is not None}
    found = advise(base, named(members, "checkpoint"), data=data, limit=limit, data_options=chosen)
    if as_json:
        typer.echo(found.to_json())
        return
    table(list(COLUMNS), found.rows(), title=found.summary)
    typer.echo(f"\n{found}")
