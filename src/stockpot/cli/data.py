"""`stockpot data list|get|build|split|info`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stockpot.cli.options import AsJson, DataOptions, examples, key_values

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List, get, build, split and describe datasets.",
    epilog=examples(
        "stockpot data get cifar10 mnist",
        "stockpot data info icons",
    ),
)


@app.command(
    "list",
    epilog=examples(
        "stockpot data list",
        "stockpot data list --json",
    ),
)
def list_(as_json: AsJson = False) -> None:
    """List the datasets, whether they are here, and what brings those that are not."""
    import json

    from stockpot.cli.console import table
    from stockpot.datasets import datasets
    from stockpot.datasets.told.presence import presence

    found = [(row, presence(row)) for row in datasets.listings()]
    if as_json:
        rows = [
            {"name": row.name, "state": here.state, "how": here.how, "summary": row.summary}
            for row, here in found
        ]
        typer.echo(json.dumps(rows, indent=1))
        return
    # What can be used at once stands first.
    order = ("embedded", "in cache", "to fetch", "not here")
    found.sort(key=lambda pair: order.index(pair[1].state))
    table(
        ["name", "state", "what it is", "how to get it"],
        [(row.name, here.state, row.summary, here.how) for row, here in found],
    )


@app.command(
    "get",
    epilog=examples(
        "stockpot data get cifar10",
        "stockpot data get mnist quickdraw",
    ),
)
def get(names: Annotated[list[str], typer.Argument(help="Datasets to fetch.")]) -> None:
    """Fetch named datasets into the cache; what is there is not fetched again."""
    from stockpot.datasets.catalogue import fetch, find

    chosen = [find(name).name for name in names]
    for name in chosen:
        typer.echo(f"{name}: {fetch(name)}")


@app.command(
    "build",
    epilog=examples(
        "stockpot data build icons -o icons.parquet",
        "stockpot data build icons --share-alike",
    ),
)
def build(
    name: Annotated[str, typer.Argument(help="A dataset that can be built: icons.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file; in the cache by default.")
    ] = None,
    size: Annotated[int, typer.Option(help="Pixels per side.")] = 64,
    share_alike: Annotated[
        bool, typer.Option("--share-alike", help="Also the CC-BY-SA families.")
    ] = False,
) -> None:
    """Build a dataset from its sources."""
    from stockpot.errors import UnknownNameError

    if name != "icons":
        raise UnknownNameError("dataset that can be built", name, ["icons"])
    from stockpot.datasets.icons.build import build as build_icons

    typer.echo(f"icons: {build_icons(out, size=size, include_share_alike=share_alike)}")


@app.command(
    "split",
    epilog=examples(
        "stockpot data split icons --protocol style --hold-out fluent -o splits/fluent",
        "stockpot data split icons --protocol subtype --count 50 --seed 1 -o splits/subtype",
    ),
)
def split(
    source: Annotated[str, typer.Argument(metavar="DATA", help="A dataset, or a folder of one.")],
    protocol: Annotated[str, typer.Option(help="style, subtype or version.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write.")],
    hold_out: Annotated[
        list[str] | None,
        typer.Option(help="A family, edition or concept to hold out; may be given again."),
    ] = None,
    count: Annotated[
        int | None, typer.Option(help="Hold out so many concepts, drawn by the seed.")
    ] = None,
    each: Annotated[
        int | None, typer.Option(help="Hold out so many concepts of each class.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of the draw.")] = 0,
    data_option: DataOptions = None,
) -> None:
    """Write both sides of a hold-out as class folders, with a sheet of each to look at."""
    from stockpot.cli.console import table
    from stockpot.datasets.holdouts.write import check_free, write_split
    from stockpot.datasets.load import load_dataset

    check_free(out)
    given = {
        "hold_out": count if hold_out is None else hold_out,
        "hold_out_each": each,
        "hold_out_seed": seed,
        **key_values(data_option, "--data-option"),
    }
    sides = {
        side: load_dataset(source, split=side, protocol=protocol, **given)
        for side in ("train", "test")
    }
    rows = write_split(sides, out)
    table(["side", "pictures", "classes", "concepts", "families"], rows)
    typer.echo(f"{out}: class folders, metadata.csv and a sheet of each side")


@app.command(
    "info",
    epilog=examples(
        "stockpot data info photos/",
        "stockpot data info icons --json",
        "stockpot data info imagenet -d path=imagenet/",
    ),
)
def info(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Names, folders or files; the named ones that are here if none."),
    ] = None,
    data_option: DataOptions = None,
    as_json: AsJson = False,
) -> None:
    """Counts, classes, licence and fingerprint of datasets, also of a folder of your own."""
    import json

    from stockpot.cli.console import table
    from stockpot.datasets.catalogue import described_names
    from stockpot.datasets.told.describe import describe

    options = key_values(data_option, "-d")
    rows = [describe(name, **options) for name in names or described_names()]
    if as_json:
        typer.echo(json.dumps([row._asdict() for row in rows], indent=1, default=str))
        return
    table(
        ["name", "images", "classes", "a class", "licence", "fingerprint", "where"],
        [
            (
                row.name,
                " + ".join(f"{count:,} {split}" for split, count in row.counts.items()),
                row.classes,
                " to ".join(f"{count:,}" for count in dict.fromkeys(row.per_class)) or "-",
                row.licence,
                row.fingerprint[:16],
                row.location,
            )
            for row in rows
        ],
    )
