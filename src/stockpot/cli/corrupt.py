"""`stockpot corrupt IN OUT`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from stockpot.cli.options import (
    DataOptions,
    Device,
    Seed,
    Split,
    examples,
    library_defaults,
)

NAME = "corrupt"
LIBRARY = library_defaults("stockpot.corrupt.apply:corrupt")
EXAMPLES = examples(
    "stockpot corrupt photos/ photos-c/ --name all --severity 1-5",
    "stockpot corrupt cifar10 CIFAR-10-C/ --layout arrays",
    "stockpot corrupt photos/ photos-c-bar/ --name imagenet-c-bar",
)
PROFILES = ("auto", "imagenet", "inception", "tinyimagenet", "cifar")


class Job(NamedTuple):
    """One corruption of one dataset, as plain values that a worker can be sent."""

    source: str
    options: dict[str, Any]
    out: str
    name: str
    severities: tuple[int | float, ...]
    layout: str
    format: str
    settings: dict[str, Any]
    """What both layouts take: seed, profile, side, device, and the corruption's own parameters."""


def command(
    source: Annotated[str, typer.Argument(metavar="IN", help="A folder, file or dataset name.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Where the corrupted images go.")],
    name: Annotated[
        str, typer.Option(help="benchmark, extra, all, a group, a family, or names.")
    ] = "all",
    severity: Annotated[str, typer.Option(help="Such as 1-5 or 1,2.5,4.")] = "1-5",
    layout: Annotated[
        str, typer.Option(help="pictures (ImageNet-C folders) or arrays (CIFAR-10-C .npy).")
    ] = "pictures",
    format: Annotated[
        str, typer.Option("--format", help="jpeg (quality 85), or lossless png, webp.")
    ] = "jpeg",
    size: Annotated[
        int,
        typer.Option(help="Cut photographs to this side as published; smaller sets stay."),
    ] = 224,
    profile: Annotated[str, typer.Option(help=", ".join(PROFILES) + ".")] = LIBRARY.profile,
    overlays: Annotated[
        str, typer.Option(help="Frost's pictures: procedural or photographs.")
    ] = "procedural",
    codec: Annotated[
        str, typer.Option(help="Of jpeg_compression: auto, libjpeg-9 or libjpeg-turbo.")
    ] = "auto",
    tiles: Annotated[
        str, typer.Option(help="Of mosaic and stickers: procedural, or a folder or dataset.")
    ] = "procedural",
    styles: Annotated[
        str, typer.Option(help="Of style_transfer: procedural, or a folder or dataset.")
    ] = "procedural",
    features: Annotated[
        str, typer.Option(help="Of style_transfer: haar, or an autoencoder such as small-vqgan.")
    ] = "haar",
    data_option: DataOptions = None,
    split: Split = None,
    limit: Annotated[int | None, typer.Option(help="At most this many images.")] = None,
    seed: Seed = LIBRARY.seed,
    device: Device = "cpu",
    engine: Annotated[str, typer.Option(help="serial or processes.")] = "processes",
) -> None:
    """Write corrupted copies of a dataset, in the ImageNet-C or CIFAR-10-C layout.

    What is already there is kept, so an interrupted run goes on when it is started again. The
    folder's stockpot.json says how it was made; another seed, profile, size or other pictures are
    refused. Classes of ImageNet lie under their WordNet ids.
    """
    from stockpot.cli.console import err
    from stockpot.cli.options import key_values
    from stockpot.corrupt.constants import profile_for
    from stockpot.corrupt.ranges import chosen_corruptions, chosen_severities
    from stockpot.corrupt.sizes import corrupted_size
    from stockpot.corrupt.stored.record import OWNERS, claim, corruption_record
    from stockpot.datasets.load import load_dataset
    from stockpot.engine import engines, pick_device
    from stockpot.errors import BadParameterError

    names, severities = chosen_corruptions(name), chosen_severities(severity)
    for key, value, known in (
        ("layout", layout, ("pictures", "arrays")),
        ("format", format, ("jpeg", "png", "webp")),
        ("profile", profile, PROFILES),
        ("overlays", overlays, ("procedural", "photographs")),
        ("codec", codec, ("auto", "libjpeg-9", "libjpeg-turbo")),
    ):
        if value not in known:
            raise BadParameterError(f"--{key}: expected {', '.join(known)}, got {value!r}.")
    if layout == "arrays" and severities != (1, 2, 3, 4, 5):
        raise BadParameterError("--layout arrays holds all five severities; leave --severity out.")
    if size < 16:
        raise BadParameterError(f"--size: expected at least 16 px, got {size}.")
    options = {"split": split, "limit": limit, **key_values(data_option, "-d")}
    place = pick_device(device)
    data = load_dataset(source, **options)  # what is wrong is said once, before any work
    shown = corrupted_size(data, size)
    settings: dict[str, Any] = {
        "seed": seed,
        "profile": profile_for(shown) if profile == "auto" else profile,
        "device": str(place),
    }
    chosen = {"overlays": overlays, "codec": codec, "tiles": tiles}
    chosen |= {"styles": styles, "features": features}
    record = corruption_record(
        data, layout=layout, size=shown, format=format, **settings | chosen | {"device": place.type}
    )
    claim(out, record, data, names)
    jobs = [
        Job(
            *(source, options, str(out), one, severities, layout, format),
            settings | {"side": size} | {key: chosen[key] for key in OWNERS.get(one, ())},
        )
        for one in names
    ]
    # One process works on an accelerator; on a CPU every core takes a corruption.
    runner = engines.get(engine if place.type == "cpu" else "serial")()
    for done, outcome in enumerate(runner.run(corrupt_one, jobs), start=1):
        if outcome.error is not None:
            raise outcome.error
        err.print(f"[{done}/{len(jobs)}] {jobs[outcome.job].name}: {outcome.value}")
    typer.echo(f"corrupted: {out}")


def corrupt_one(job: Job) -> str:
    """Write one corruption; runs in a worker."""
    from stockpot.corrupt.stored.files import write_array, write_pictures
    from stockpot.datasets.load import load_dataset

    data = load_dataset(job.source, **job.options)
    out = Path(job.out)
    if job.layout == "arrays":
        return write_array(data, out, job.name, **job.settings).name
    told: dict[str, Any] = {"format": job.format, **job.settings}
    new = sum(write_pictures(data, out, job.name, level, **told) for level in job.severities)
    return f"{new} new files of {len(data) * len(job.severities)}"
