"""`stockpot view DIR`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stockpot.cli.options import DataOptions, Split, examples
from stockpot.stages import stage

if TYPE_CHECKING:
    from stockpot.measure.samples.pictures import DatasetPictures
    from stockpot.report.viewer.collect import ImageSet
    from stockpot.results.samples import DataSource

NAME = "view"
EXAMPLES = examples(
    "stockpot view runs/compare",
    "stockpot view runs/a runs/b -o site --pictures 5000",
    "stockpot view runs/old --data icons --limit 200",
)


def command(
    folders: Annotated[list[Path], typer.Argument(help="Run folders or result files.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The folder of the site; view in the first run folder."),
    ] = None,
    title: Annotated[str, typer.Option(help="The page's title.")] = "Stockpot viewer",
    pictures: Annotated[
        int, typer.Option(min=0, help="At most this many images of each set are shown as pictures.")
    ] = 2000,
    changed: Annotated[
        int,
        typer.Option(min=0, help="At most this many pictures under corruptions are made again."),
    ] = 1000,
    data: Annotated[
        str | None, typer.Option("--data", help="Where the images are, if results do not say it.")
    ] = None,
    split: Split = None,
    limit: Annotated[int | None, typer.Option(help="As the results were measured.")] = None,
    data_option: DataOptions = None,
) -> None:
    """Write a viewer: find, filter and look at the images that models get right and wrong.

    It is a folder of static files; open its index.html. Predictions and labels come from runs that
    were measured with --log-samples; other results still tell which images were right.
    """
    with stage("start"):
        from stockpot.cli.options import key_values
        from stockpot.datasets.load import load_dataset
        from stockpot.remote.working_copy import run_copies
        from stockpot.report.viewer.site import Limits, no_pictures, write_site
        from stockpot.results.samples import DataSource
        from stockpot.results.store import result_files

    given = None
    if data is not None:
        options = {"split": split, "limit": limit, **key_values(data_option, "-d")}
        given = DataSource(data, {k: v for k, v in options.items() if v is not None})
        load_dataset(given.source, **given.options)  # what was asked for by name must be there

    with run_copies(folders) as places:
        here = [place.folder for place in places]
        first = here[0] if here[0].is_dir() else here[0].parent

        def find(images: ImageSet) -> DatasetPictures | str:
            return _pictures(images, here, given)

        page = write_site(
            result_files(*here),
            out or first / "view",
            title=title,
            find=find if pictures else no_pictures,
            limits=Limits(pictures, changed),
        )
    typer.echo(f"viewer: {places[0].shown(page)}")


def _pictures(
    images: ImageSet, folders: list[Path], given: DataSource | None
) -> DatasetPictures | str:
    """The pictures of a set: where the user says, else where its records or recipe say."""
    from stockpot.measure.samples.pictures import pictures_of

    if images.outside:
        cells = [cell for shown in images.conditions.values() for cell in shown.cells.values()]
        chosen: Any = (cells[0].key.params.get("outside") or {}).get(images.outside)
        if chosen is None:
            return f"the results do not say where {images.outside} is"
        return pictures_of(images.source, n=images.n, fingerprint="", chosen=chosen)
    source = given or (images.source if images.source.source else _recipe(images.data, folders))
    return pictures_of(source, n=images.n, fingerprint=images.fingerprint)


def _recipe(name: str, folders: list[Path]) -> DataSource:
    """The dataset of that name in the recipe that a run followed."""
    from stockpot.recipe import load_recipe
    from stockpot.results.samples import DataSource

    for folder in folders:
        file = folder / "recipe.yaml"
        entry = load_recipe(file).recipe.data.get(name) if file.is_file() else None
        if entry is not None:
            options = {"split": entry.split, "limit": entry.limit, **entry.params}
            return DataSource(entry.dataset, {k: v for k, v in options.items() if v is not None})
    return DataSource()
