"""`stockpot similarity BASE MEMBER...`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stockpot.cli.options import examples

NAME = "similarity"
EXAMPLES = examples(
    "stockpot similarity icons-vit icons-vit-plain icons-vit-colour icons-vit-cutmix",
    "stockpot similarity base/ a/ b/ --csv cosine.csv --plot cosine.svg",
)


def command(
    base: Annotated[str, typer.Argument(help="What the members were tuned from.")],
    members: Annotated[list[str], typer.Argument(help="Checkpoints, as SOURCE or NAME=SOURCE.")],
    csv: Annotated[Path | None, typer.Option("--csv", help="Write the cosines here.")] = None,
    layers: Annotated[
        Path | None, typer.Option("--layers", help="Write the mean cosine of every tensor here.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Write a heat map (SVG) here.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Tensors that are left out.")
    ] = None,
    intersect: Annotated[
        bool, typer.Option("--intersect", help="Compare only what all checkpoints share.")
    ] = False,
) -> None:
    """Compare what fine-tuning changed: cosines, lengths and agreeing signs of task vectors."""
    from stockpot.cli.console import table
    from stockpot.cli.options import named
    from stockpot.fuse.similarity import similarity

    found = similarity(
        base, named(members, "checkpoint"), exclude=tuple(exclude or ()), intersect=intersect
    )
    rows = [
        [name, f"{float(norm):.4f}", *(f"{value:.4f}" for value in cosines)]
        for name, norm, cosines in zip(found.names, found.norms, found.cosine.tolist(), strict=True)
    ]
    table(["member", "length", *found.names], rows, title="cosine of the changes")
    agreement = [
        [name, *(f"{value:.4f}" for value in values)]
        for name, values in zip(found.names, found.sign_agreement.tolist(), strict=True)
    ]
    table(["member", *found.names], agreement, title="share of agreeing signs")
    if csv:
        found.to_csv(csv)
    if layers:
        found.profile_csv(layers)
    if plot:
        found.to_svg(plot)
    for path in (csv, layers, plot):
        if path:
            typer.echo(f"written: {path}")
