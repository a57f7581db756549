"""`stockpot attack MODEL`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from stockpot.cli.options import (
    AsJson,
    DataOptions,
    Device,
    ModelOptions,
    Params,
    Seed,
    Split,
    examples,
    library_defaults,
)

NAME = "attack"
LIBRARY = library_defaults("stockpot.measure.run:measure")
ATTACK = library_defaults("stockpot.attack.run:attack")
EXAMPLES = examples(
    "stockpot attack icons-linf --data icons --limit 50 --eps 4/255 --save found",
    "stockpot attack icons-resnet --data icons --limit 50 --images found",
    "stockpot attack icons-linf --data icons --limit 9 --method autoattack -p attacks=fab-t,square",
)


def command(
    model: Annotated[str, typer.Argument(help="A model, as for `stockpot measure`.")],
    data: Annotated[str, typer.Option("--data", help="A dataset's name, folder or file.")],
    norm: Annotated[
        str | None, typer.Option(help=f"linf, l2, l1, or several by comma. [{ATTACK.norm}]")
    ] = None,
    eps: Annotated[
        str | None,
        typer.Option(
            help=f"One radius for each norm, where white is 1. [{ATTACK.eps}; 128/255; 12]"
        ),
    ] = None,
    method: Annotated[
        str | None, typer.Option(help=f"A name from `stockpot list attacks`. [{ATTACK.method}]")
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(help="A named protocol instead, such as robustbench (docs/attacks.md)."),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option("--save", "-o", help="Write the images that were found to this folder."),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(help="Score images that were saved before, on this model; attack nothing."),
    ] = None,
    log_samples: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Save the result with each image's answers in this run folder, for "
            "`stockpot view`.",
        ),
    ] = None,
    split: Split = None,
    limit: Annotated[int | None, typer.Option(help="At most this many images.")] = None,
    params: Params = None,
    model_option: ModelOptions = None,
    data_option: DataOptions = None,
    seed: Seed = LIBRARY.seed,
    device: Device = LIBRARY.device,
    batch_size: Annotated[int, typer.Option(help="Images per forward pass.")] = LIBRARY.batch_size,
    as_json: AsJson = False,
) -> None:
    """Attack a model, print what it withstands, and (with --save) keep the images.

    -p sets the attack's parameters: steps, restarts, loss, targets, eot; of AutoAttack version
    (standard, plus, rand), attacks, queries, patience. `stockpot measure --with adversarial` takes
    the same and saves the result.
    """
    from stockpot.cli.console import ImageProgress
    from stockpot.cli.options import key_values
    from stockpot.cli.scores import print_scores
    from stockpot.measure.run import measure

    asked: dict[str, Any] = {"norms": norm, "eps": eps, "method": method, "protocol": protocol}
    if protocol is None and images is None:
        defaults = {"norms": ATTACK.norm, "method": ATTACK.method}
        # A norm that is named wants its own radius.
        defaults |= {"eps": ATTACK.eps} if norm is None else {}
        asked = {key: defaults.get(key) if value is None else value for key, value in asked.items()}
    asked |= {"save": str(save) if save else None, "images": str(images) if images else None}
    settings = {key: value for key, value in asked.items() if value is not None}
    with ImageProgress() as progress:
        (result,) = measure(
            [model],
            {"adversarial": settings | key_values(params, "-p")},
            data=data,
            out=log_samples,
            log_samples=log_samples is not None,
            seed=seed,
            device=device,
            batch_size=batch_size,
            model_options=key_values(model_option, "-m"),
            data_options={"split": split, "limit": limit, **key_values(data_option, "-d")},
            progress=progress,
        )
    if as_json:
        typer.echo(result.model_dump_json())
    else:
        print_scores([result])
    if log_samples is not None:
        typer.echo(f"\npictures: stockpot view {log_samples}", err=as_json)
    if save is not None:
        typer.echo(f"\nimages: {save}", err=as_json)
