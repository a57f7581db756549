"""`stockpot convert SOURCE -o OUT`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stockpot.cli.options import examples

NAME = "convert"
EXAMPLES = examples(
    "stockpot convert last.ckpt -o last.safetensors --strip model.",
    "stockpot convert clip-base -o runs/open-clip --layout open_clip",
    "stockpot convert ViT-B-32.pt -o clip-hf --layout hf",
)


def command(
    source: Annotated[
        str, typer.Argument(help="A torch file of any kind, a safetensors file or a model folder.")
    ],
    out: Annotated[
        Path, typer.Option("--to", "--out", "-o", help="NAME.safetensors, or a folder to make.")
    ],
    key: Annotated[
        str | None, typer.Option(help="Where in a torch file the weights are, such as model.ema.")
    ] = None,
    strip: Annotated[
        list[str] | None, typer.Option(metavar="PREFIX", help="Take this off the names' front.")
    ] = None,
    layout: Annotated[
        str | None, typer.Option(help="Names of a CLIP: hf (transformers) or open_clip.")
    ] = None,
    activation: Annotated[
        str | None, typer.Option(help="Of a CLIP without configuration: quick_gelu or gelu.")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="Of floats: fp32, bf16, fp16, fp64.")] = None,
) -> None:
    """Write a checkpoint as safetensors, or a CLIP under other names.

    Objects in a torch file (arguments, callbacks, optimisers) are never run: a process of its own
    reads the tensors and leaves out the rest.
    """
    from stockpot.checkpoints.convert import convert, described

    done = convert(
        source,
        out,
        key=key,
        strip=tuple(strip or ()),
        layout=layout,  # type: ignore[arg-type]  # it says itself what it takes
        activation=activation,  # type: ignore[arg-type]
        dtype=dtype,
    )
    for line in described(done):
        typer.echo(line)
