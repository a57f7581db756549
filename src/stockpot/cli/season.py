"""`stockpot season METHOD MEMBER...`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stockpot.cli.options import (
    DataOptions,
    Device,
    Params,
    Precision,
    Seed,
    Split,
    examples,
    library_defaults,
)

if TYPE_CHECKING:
    from stockpot.results.schema import Score
    from stockpot.season.seasoned import Seasoned

NAME = "season"
LIBRARY = library_defaults("stockpot.season.run:season")
EXAMPLES = examples(
    "stockpot season grid icons-vit-plain icons-vit-colour icons-vit-cutmix --data icons "
    "-o runs/seasoned",
    "stockpot season greedy icons-vit-plain icons-vit-colour icons-vit-cutmix --data icons "
    "--shots 200 -o runs/greedy",
    "stockpot season grid icons-vit-plain icons-vit-colour --data icons --limit 300 -o runs/two "
    "--plot runs/two-plots",
)


def command(
    method: Annotated[str, typer.Argument(help="A method from `stockpot list seasoners`.")],
    members: Annotated[list[str], typer.Argument(help="Models, as SOURCE or NAME=SOURCE.")],
    data: Annotated[str, typer.Option("--data", help="The images to season for.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A folder for the soup.")],
    source: Annotated[
        str | None, typer.Option(help="Labelled data of the members' own kind (its val split).")
    ] = None,
    shots: Annotated[int, typer.Option(help="How many images the method may see.")] = LIBRARY.shots,
    protocol: Annotated[
        str, typer.Option(help="holdout, or leaky: also score on the images it saw.")
    ] = LIBRARY.protocol,
    bn: Annotated[
        str,
        typer.Option(
            help="BatchNorm statistics of every soup and member: mix, recompute, left, or auto: "
            "recompute where there is a source, else mix."
        ),
    ] = LIBRARY.bn,
    bn_images: Annotated[
        str, typer.Option(help="Images for recompute: source, or target (those it may see).")
    ] = LIBRARY.bn_images,
    class_space: Annotated[
        str,
        typer.Option(help="Score among all outputs, the data's (subset), or as is usual."),
    ] = LIBRARY.class_space,
    split: Split = None,
    limit: Annotated[int | None, typer.Option(help="At most this many images.")] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="A folder for pictures of the soups tried, over all images of the data."),
    ] = None,
    params: Params = None,
    data_option: DataOptions = None,
    seed: Seed = LIBRARY.seed,
    device: Device = "auto",
    batch_size: Annotated[int, typer.Option(help="Images per forward pass.")] = LIBRARY.batch_size,
    precision: Precision = LIBRARY.precision,
) -> None:
    """Choose a soup's weights from a few images and score it on those it did not see."""
    from stockpot.cli.console import ImageProgress, table
    from stockpot.cli.options import key_values, named
    from stockpot.datasets.load import load_dataset
    from stockpot.errors import BadParameterError
    from stockpot.season.run import season

    if protocol not in ("holdout", "leaky"):
        raise BadParameterError(f"--protocol: expected holdout or leaky, got {protocol!r}.")
    options = {"split": split, "limit": limit, **key_values(data_option, "-d")}
    settings = key_values(params, "-p")
    own = {"source", "out", "shots", "protocol", "full_matrix", "seed", "device", "batch_size"}
    own |= {"command", "progress", "precision"}
    for name in sorted(own & settings.keys()):
        raise BadParameterError(
            f"-p {name}: no parameter of the method {method}.",
            hint="Number of images, seed, device and the like are options: --shots, --seed, ...",
        )
    with ImageProgress() as bar:
        chosen = season(
            method,
            named(members, "model"),
            load_dataset(data, **options),
            source=source,
            out=out,
            shots=shots,
            protocol="leaky" if protocol == "leaky" else "holdout",
            full_matrix=plot is not None,
            seed=seed,
            device=device,
            batch_size=batch_size,
            progress=bar,
            command=shlex.join(["stockpot", *sys.argv[1:]]),
            **{
                "bn": bn,
                "bn_images": bn_images,
                "class_space": class_space,
                "precision": precision,
                **settings,
            },
        )
    rows = [
        [name, f"{weight:.3f}", _shown(chosen.member_accuracy[name])]
        for name, weight in zip(chosen.members, chosen.weights, strict=True)
    ]
    rows.append(["output ensemble", "-", _shown(chosen.ensemble_accuracy)])
    rows.append([f"soup ({method})", "-", _shown(chosen.accuracy)])
    threats = chosen.accuracy.condition.get("threats")
    metric = f"accuracy under {threats}" if threats else "accuracy"
    title = f"scored on {chosen.accuracy.n} images, 95 % intervals"
    table(["model", "weight", metric], rows, title=title)
    if chosen.clean_accuracy:
        typer.echo(f"the soup on the same images, clean: {_shown(chosen.clean_accuracy)}")
    typer.echo(f"BatchNorm statistics: {chosen.record.details['batch_norm']}")
    if "seen" in (notes := chosen.record.details["notes"]):
        typer.echo(f"note: {notes['seen']}")
    typer.echo(f"\nsoup: {out}")
    if plot is not None:
        _draw(chosen, plot, data)


def _draw(chosen: Seasoned, folder: Path, data: str) -> None:
    from stockpot.errors import BadParameterError
    from stockpot.season.plots.draw import draw_matrix

    if chosen.matrix is None:
        raise BadParameterError(
            f"--plot: {chosen.method} tries no set of soups to draw; use grid or wise_ft."
        )
    threats = chosen.accuracy.condition.get("threats")
    score = f"accuracy under {threats}" if threats else "accuracy"
    for path in draw_matrix(chosen.matrix, chosen.members, folder, data=data, score=score):
        typer.echo(f"picture: {path}")


def _shown(score: Score) -> str:
    from stockpot.results.headline import format_score

    return format_score(score)
