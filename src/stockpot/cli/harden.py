"""`stockpot harden METHOD MODEL`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from stockpot.cli.options import DataOptions, Device, Params, examples

NAME = "harden"
EXAMPLES = examples(
    "stockpot harden nominal icons-vit --data icons -p epochs=3 -o runs/vit-more",
    "stockpot show nominal",
)


def command(
    method: Annotated[str, typer.Argument(help="A method from `stockpot list hardeners`.")],
    model: Annotated[str, typer.Argument(help="A model, as for `stockpot measure`.")],
    data: Annotated[str, typer.Option("--data", help="Training data (its train split).")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A folder for the trained model.")],
    validate: Annotated[
        bool, typer.Option("--validate", help="Also use the data's val split (for keep=best).")
    ] = False,
    limit: Annotated[int | None, typer.Option(help="At most this many training images.")] = None,
    defend: Annotated[
        list[str] | None,
        typer.Option(help="Train behind a defence such as clahe; may be repeated. none: without."),
    ] = None,
    params: Params = None,
    data_option: DataOptions = None,
    device: Device = "auto",
    shard: Annotated[
        bool,
        typer.Option("--shard", help="Under torchrun: each process holds a part of the model."),
    ] = False,
) -> None:
    """Train a model with a hardening method; killed and started again, it goes on.

    On several GPUs or machines: torchrun --nproc-per-node N -m stockpot harden ...
    """
    from stockpot.cli.console import ImageProgress, say_where
    from stockpot.cli.options import key_values, nested
    from stockpot.datasets.load import load_dataset
    from stockpot.engine import pick_device
    from stockpot.harden.many.processes import is_first
    from stockpot.harden.run import harden

    options = key_values(data_option, "-d")
    settings = nested(key_values(params, "-p"), "-p")
    if is_first():
        say_where(device, settings.get("precision", "fp32"))
    with ImageProgress(shown=is_first()) as bar:

        def report(step: int, total: int, seen: dict[str, float]) -> None:
            numbers = ", ".join(f"{key} {value:.4f}" for key, value in seen.items())
            bar(f"{method}: {numbers}", step, total)

        harden(
            method,
            model,
            load_dataset(data, **{"split": "train", "limit": limit, **options}),
            validation=load_dataset(data, **{**options, "split": "val"}) if validate else None,
            defend=defend if defend != ["none"] else "none",
            out=out,
            device=str(pick_device(device)),
            shard=shard,
            report=report,
            progress=lambda what, step, total: bar(f"{method}: {what}", step, total),
            command=shlex.join(["stockpot", *sys.argv[1:]]),
            **settings,
        )
    if is_first():
        typer.echo(f"model: {out}")
