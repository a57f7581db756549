"""`stockpot corrupt IN OUT`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, cast

import typer

from stockpot.cli.options import (
    DataOptions,
    Seed,
    examples,
    library_defaults,
)

if TYPE_CHECKING:
    from PIL import Image

NAME = "corrupt"
LIBRARY = library_defaults("stockpot.corrupt.apply:corrupt")
EXAMPLES = examples(
    "stockpot corrupt photos/ photos-c/ --name all --severity 1-5",
    "stockpot corrupt cifar10 CIFAR-10-C/ --layout arrays",
)


class Job(NamedTuple):
    """One corruption of one dataset, as plain values that a worker can be sent."""

    source: str
    options: dict[str, Any]
    out: str
    name: str
    severities: tuple[int, ...]
    layout: str
    format: str
    size: int
    seed: int
    profile: str


def command(
    source: Annotated[str, typer.Argument(metavar="IN", help="A folder, file or dataset name.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Where the corrupted images go.")],
    name: Annotated[str, typer.Option(help="benchmark, extra, all, a group, or names.")] = "all",
    severity: Annotated[str, typer.Option(help="Such as 1-5 or 1,3,5.")] = "1-5",
    layout: Annotated[
        str, typer.Option(help="pictures (ImageNet-C folders) or arrays (CIFAR-10-C .npy).")
    ] = "pictures",
    format: Annotated[
        str, typer.Option("--format", help="jpeg (quality 85), or lossless png, webp.")
    ] = "jpeg",
    size: Annotated[
        int, typer.Option(help="Crop pictures of many sizes to this side, after 8/7 of it.")
    ] = 224,
    profile: Annotated[str, typer.Option(help="imagenet, cifar or auto.")] = LIBRARY.profile,
    data_option: DataOptions = None,
    split: Annotated[str, typer.Option(help="Which split of the data.")] = "test",
    limit: Annotated[int | None, typer.Option(help="At most this many images.")] = None,
    seed: Seed = LIBRARY.seed,
    engine: Annotated[str, typer.Option(help="serial or processes.")] = "processes",
) -> None:
    """Write corrupted copies of a dataset, in the ImageNet-C or CIFAR-10-C layout.

    What is already there is kept, so an interrupted run goes on when it is started again.
    """
    from stockpot.cli.console import err
    from stockpot.cli.options import key_values
    from stockpot.corrupt.ranges import chosen_corruptions, chosen_severities
    from stockpot.datasets.load import load_dataset
    from stockpot.engine import engines
    from stockpot.errors import BadParameterError

    names, severities = chosen_corruptions(name), chosen_severities(severity)
    for key, value, known in (
        ("layout", layout, ("pictures", "arrays")),
        ("format", format, ("jpeg", "png", "webp")),
        ("profile", profile, ("auto", "imagenet", "cifar")),
    ):
        if value not in known:
            raise BadParameterError(f"--{key}: expected {', '.join(known)}, got {value!r}.")
    if layout == "arrays" and severities != (1, 2, 3, 4, 5):
        raise BadParameterError("--layout arrays holds all five severities; leave --severity out.")
    options = {"split": split, "limit": limit, **key_values(data_option, "-d")}
    load_dataset(source, **options)  # what is wrong with the data is said once, before any work
    jobs = [
        Job(*(source, options, str(out), chosen, severities, layout, format, size, seed, profile))
        for chosen in names
    ]
    for done, outcome in enumerate(engines.get(engine)().run(corrupt_one, jobs), start=1):
        if outcome.error is not None:
            raise outcome.error
        err.print(f"[{done}/{len(jobs)}] {jobs[outcome.job].name}: {outcome.value}")
    typer.echo(f"corrupted: {out}")


def corrupt_one(job: Job) -> str:
    """Write one corruption; runs in a worker."""
    from stockpot.corrupt.constants import Profile
    from stockpot.corrupt.files import Format, write_array, write_pictures
    from stockpot.datasets.load import load_dataset
    from stockpot.models.preprocess import Preprocess
    from stockpot.types import ImageSize

    data = load_dataset(job.source, **job.options)
    square = Preprocess(ImageSize(job.size, job.size), job.size * 8 // 7, interpolation="bilinear")

    def fit(image: Image.Image) -> Image.Image:
        return square.fit(image)

    profile = cast("Profile | Literal['auto']", job.profile)
    if job.layout == "arrays":
        path = write_array(data, Path(job.out), job.name, seed=job.seed, profile=profile, fit=fit)
        return path.name
    new = sum(
        write_pictures(
            data,
            Path(job.out),
            job.name,
            severity,
            seed=job.seed,
            profile=profile,
            fit=fit,
            format=cast(Format, job.format),
        )
        for severity in job.severities
    )
    return f"{new} new files of {len(data) * len(job.severities)}"
