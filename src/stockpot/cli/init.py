"""`stockpot init`: four questions, one recipe."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from stockpot.cli.options import examples

NAME = "init"
EXAMPLES = examples(
    "stockpot init",
    "stockpot init mine.yaml --models runs/a,runs/b --data photos/ --fuse average "
    "--measures clean,corruption",
)
MODELS, DATA, FUSE, MEASURES = "icons-vit-plain,icons-vit-colour", "icons", "none", "clean,cost"


def command(
    recipe: Annotated[Path, typer.Argument(help="The file to write.")] = Path("recipe.yaml"),
    models: Annotated[
        str | None, typer.Option(help="Models by comma, as SOURCE or NAME=SOURCE.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="A dataset's name, folder or file.")] = None,
    fuse: Annotated[
        str | None, typer.Option(help="How to fuse them (`stockpot list fusers`), or none.")
    ] = None,
    measures: Annotated[
        str | None, typer.Option(help="What to measure (`stockpot list measures`), by comma.")
    ] = None,
) -> None:
    """Write a first recipe from four answers, checked before it is written.

    Asked on a terminal; elsewhere what no option says has the answer shown in brackets.
    """
    from stockpot.checkpoints.member_names import by_name
    from stockpot.cli.options import named
    from stockpot.errors import UserError
    from stockpot.files import write_atomic
    from stockpot.fuse import fusers
    from stockpot.recipe import RecipeFile
    from stockpot.recipe.begin import NOTHING, Answers, first_recipe
    from stockpot.run.check import check

    if recipe.exists():
        raise UserError(f"{recipe} exists already.", hint="Name another file.")
    sources = by_name(named(_listed(_ask("Which models, by comma?", models, MODELS)), "model"))
    chosen = Answers(
        models={name: _place(source, recipe) for name, source in sources.items()},
        data=_place(_ask("Which data: a name or a folder?", data, DATA), recipe),
        fuse=_ask("How to fuse the models: none, average, ties, ...?", fuse, FUSE),
        measures=_listed(_ask("What to measure, by comma?", measures, MEASURES)),
    )
    base = chosen.fuse != NOTHING and fusers.get(chosen.fuse).tags.needs_base
    if base and len(chosen.models) < 2:
        raise UserError(f"{chosen.fuse} needs a base: give it as the first of at least two models.")
    text = first_recipe(chosen, base=base)
    check(RecipeFile(text, str(recipe)))
    write_atomic(recipe, text)
    typer.echo(f"{recipe} is written. Look at it, then: stockpot run {recipe}")


def _ask(question: str, given: str | None, usual: str) -> str:
    if given is not None:
        return given
    if sys.stdin.isatty():
        return str(typer.prompt(question, default=usual)).strip()
    typer.echo(f"{question} [{usual}]")
    return usual


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _place(source: str, recipe: Path) -> str:
    """A path as it is found from the recipe's folder; anything else as it is."""
    path = Path(source).expanduser()
    here = recipe.resolve().parent == Path.cwd().resolve()
    if here or path.is_absolute() or not path.exists() or source.startswith("zoo:"):
        return source
    return os.path.abspath(path)
