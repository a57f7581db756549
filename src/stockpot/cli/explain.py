"""`stockpot explain MODEL`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stockpot.cli.options import (
    DataOptions,
    Device,
    Split,
    examples,
    library_defaults,
)

NAME = "explain"
LIBRARY = library_defaults("stockpot.explain.run:explain")
EXAMPLES = examples(
    "stockpot explain icons-vit --data icons -o runs/relevance.png",
    "stockpot explain icons-resnet --data object_on_context --count 12 --target predicted "
    "-o runs/objects.png",
)


def command(
    model: Annotated[str, typer.Argument(help="A model, as for `stockpot measure`.")],
    data: Annotated[str, typer.Option("--data", help="The images to look at.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A picture file for the overlays.")],
    count: Annotated[int, typer.Option(help="How many images, drawn at random.")] = 8,
    target: Annotated[str, typer.Option(help="Explain the true `label` or `predicted`.")] = "label",
    method: Annotated[str, typer.Option(help="auto, rollout or grad_cam.")] = LIBRARY.method,
    layers: Annotated[str, typer.Option(help="Rollout over all blocks or last.")] = LIBRARY.layers,
    split: Split = None,
    data_option: DataOptions = None,
    device: Device = "auto",
) -> None:
    """Draw where in some pictures the evidence for a class lies."""
    from io import BytesIO

    from PIL import Image

    from stockpot.cli.options import key_values
    from stockpot.datasets.load import load_dataset
    from stockpot.engine import pick_device
    from stockpot.errors import BadParameterError
    from stockpot.explain.run import overlays
    from stockpot.files import write_atomic
    from stockpot.models.load import load_for

    for name, value, known in (
        ("target", target, ("label", "predicted")),
        ("method", method, ("auto", "rollout", "grad_cam")),
        ("layers", layers, ("all", "last")),
    ):
        if value not in known:
            raise BadParameterError(f"--{name}: expected {' or '.join(known)}, got {value!r}.")
    kinds = Image.registered_extensions()
    if out.suffix.lower() not in kinds:
        raise BadParameterError(f"--out: expected a picture such as {out.stem}.png, got {out}.")
    options = {"split": split, "limit": count, **key_values(data_option, "-d")}
    images = load_dataset(data, **options)
    page = overlays(
        load_for(model, images, device=pick_device(device)),
        images,
        predicted=target == "predicted",
        method=method,  # type: ignore[arg-type]
        layers=layers,  # type: ignore[arg-type]
    )
    stream = BytesIO()
    page.save(stream, format=kinds[out.suffix.lower()])
    write_atomic(out, stream.getvalue())
    typer.echo(f"picture: {out}")
