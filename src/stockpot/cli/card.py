"""`stockpot card MODEL`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stockpot.cli.options import (
    DataOptions,
    Device,
    ModelOptions,
    Seed,
    Split,
    examples,
    library_defaults,
)
from stockpot.remote.address import shown

NAME = "card"
LIBRARY = library_defaults("stockpot.card.make:card")
EXAMPLES = examples(
    "stockpot card icons-resnet --data icons --minutes 3",
    "stockpot card shipped/model.onnx --data photos/ --minutes 20 -o runs/card",
)


def command(
    model: Annotated[str, typer.Argument(help="A model, as SOURCE or NAME=SOURCE.")],
    data: Annotated[str, typer.Option("--data", help="A dataset's name, folder or file.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="The run folder or its address; runs/card-NAME by default."
        ),
    ] = None,
    minutes: Annotated[
        float, typer.Option(help="How long it may take; the number of images follows.")
    ] = LIBRARY.minutes,
    split: Split = None,
    limit: Annotated[int | None, typer.Option(help="At most this many images.")] = None,
    model_option: ModelOptions = None,
    data_option: DataOptions = None,
    seed: Seed = LIBRARY.seed,
    device: Device = LIBRARY.device,
) -> None:
    """Measure a model all round in a few minutes and say in words what came out.

    Clean accuracy, calibration, cost, corruptions, attacks and dynamic evaluation; a short timing
    pass decides how many images each gets. The same command again goes on where it ended.
    """
    from stockpot.card.make import card
    from stockpot.checkpoints.member_names import by_name
    from stockpot.cli.console import ImageProgress, err
    from stockpot.cli.console import out as console
    from stockpot.cli.options import key_values, named

    ((name, source),) = by_name(named([model], "model")).items()
    folder = out or Path("runs") / f"card-{name}"
    with ImageProgress() as progress:
        done = card(
            source,
            data,
            out=folder,
            name=name,
            minutes=minutes,
            split=split,
            limit=limit,
            seed=seed,
            device=device,
            model_options=key_values(model_option, "-m"),
            data_options=key_values(data_option, "-d"),
            progress=progress,
            told=err.print,
        )
    console.print(f"\n{name} on {data}: {done.verdict.line}\n")
    for sentence in done.verdict.sentences:
        console.print(f"  {sentence}")
    for warning in done.verdict.warnings:
        console.print(f"  note: {warning}")
    page = done.page.relative_to(done.folder).as_posix()
    console.print(f"\nresults: {shown(folder, 'results')}   page: {shown(folder, page)}")
