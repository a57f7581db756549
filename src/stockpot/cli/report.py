"""`stockpot report DIR`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stockpot.cli.options import examples

if TYPE_CHECKING:
    from stockpot.recipe.blocks import Recipe

NAME = "report"
EXAMPLES = examples(
    "stockpot report runs/demo",
    "stockpot report runs/a runs/b -o both.html",
)


def command(
    folders: Annotated[
        list[Path], typer.Argument(help="Run folders (or addresses) or result files.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page; report.html in the first folder.")
    ] = None,
    title: Annotated[
        str, typer.Option(help="The page's title; that of the first run by default.")
    ] = "",
    pictures: Annotated[
        bool, typer.Option(help="Show a few pictures of the data, where it is at hand.")
    ] = True,
) -> None:
    """Make one self-contained HTML page from result files alone.

    It opens with the few numbers that matter, what is best beyond noise and what to mind; then come
    scores, corruptions, attacks, soups and where it all came from. Where a run folder keeps the
    recipe it followed, the page has the title and the scatter charts that the recipe asks for.
    """
    from stockpot.remote.working_copy import run_copies
    from stockpot.report.page import write_page
    from stockpot.report.pictures import NONE
    from stockpot.report.sections.scatter import Axes
    from stockpot.results.store import load_results
    from stockpot.run.pictures import pictures_of

    with run_copies(folders) as places:
        folders = [place.folder for place in places]
        first = folders[0] if folders[0].is_dir() else folders[0].parent
        recipes = [recipe for folder in folders if (recipe := _followed(folder)) is not None]
        blocks = [recipe.report for recipe in recipes if recipe.report is not None]
        results = load_results(*folders)
        sources = {name: entry.source for one in recipes for name, entry in one.data.items()}
        page = write_page(
            results,
            out or first / "report.html",
            title=title or (blocks[0].title if blocks else "Stockpot report"),
            subtitle=blocks[0].subtitle if len(blocks) == 1 else "",
            axes=[Axes(s.across, s.up, s.title) for block in blocks for s in block.scatter],
            folders=folders,
            pictures=pictures_of(results, sources) if pictures else NONE,
        )
    typer.echo(f"report: {places[0].shown(page)}")


def _followed(folder: Path) -> Recipe | None:
    """The recipe of a run."""
    from stockpot.recipe import load_recipe

    file = folder / "recipe.yaml"
    return load_recipe(file).recipe if file.is_file() else None
