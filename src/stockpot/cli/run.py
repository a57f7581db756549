"""`stockpot run RECIPE`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stockpot.cli.options import examples

if TYPE_CHECKING:
    from stockpot.measure.cells import Cell
    from stockpot.recipe import MeasureEntry, Recipe, RecipeFile
    from stockpot.results.schema import CellResult

NAME = "run"
EXAMPLES = examples(
    "stockpot run recipes/demo.yaml",
    "stockpot run recipes/demo.yaml -o runs/two --set seed=2 --dry-run",
)


def command(
    recipe: Annotated[str, typer.Argument(help="A recipe file.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The run folder; runs/NAME by default.")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="a.b=c", help="Change a value.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh/--resume", help="Start anew, or do only what is missing.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
    engine: Annotated[
        str, typer.Option(help="Where models and cells are made: serial, processes.")
    ] = "serial",
) -> None:
    """Follow a recipe: make models, measure them, write the report."""
    from stockpot.cli.changes import compare_changes
    from stockpot.cli.making import make_models
    from stockpot.cli.plan import check
    from stockpot.engine import engines
    from stockpot.recipe import load_recipe

    file = load_recipe(recipe, overrides or ())
    check(file)
    engines.get(engine)
    folder = out or Path("runs") / Path(recipe).stem
    if dry_run:
        _say_plan(file, folder)
        return
    if fresh:
        _clear(folder)
    _remember(file, folder)
    make_models(file, folder, engine)
    compare_changes(file.recipe, folder)
    results = _measure(file.recipe, folder, engine)
    _finish(file.recipe, folder, results)


def _clear(folder: Path) -> None:
    from stockpot.errors import UserError

    if folder.exists() and not (folder / "recipe.yaml").exists():
        raise UserError(
            f"{folder} is not a run folder (no recipe.yaml in it), so --fresh leaves it alone."
        )
    shutil.rmtree(folder, ignore_errors=True)


def _remember(file: RecipeFile, folder: Path) -> None:
    """Keep the recipe as it was followed, overrides included."""
    import yaml

    from stockpot.files import write_atomic

    text = yaml.safe_dump(file.raw, sort_keys=False, allow_unicode=True)
    write_atomic(folder / "recipe.yaml", text)


def cells_of(recipe: Recipe, folder: Path) -> list[Cell]:
    """What a recipe measures, cell by cell; models may still have to be made."""
    from stockpot.cli.make import data_specs, model_spec
    from stockpot.cli.plan import measured
    from stockpot.measure.cells import Cell

    return [
        Cell(
            model=model_spec(recipe, model, folder),
            measure=entry.measure,
            data=data,
            params=_params(recipe, entry, folder, model),
            seed=recipe.seed,
            store=str(folder / "results"),
            device=recipe.device,
            batch_size=recipe.batch_size,
        )
        for model, entry in measured(recipe)
        for data in data_specs(recipe, entry.data)
    ]


def _params(recipe: Recipe, entry: MeasureEntry, folder: Path, model: str) -> dict[str, Any]:
    from stockpot.cli.make import located
    from stockpot.measure import measures

    measure = measures.get(entry.measure)
    return measure.validate(located(recipe, measure, entry.params, folder, model))


def _measure(recipe: Recipe, folder: Path, engine: str) -> list[CellResult]:
    from stockpot.cli.console import ImageProgress, err
    from stockpot.measure.run import run_cells

    with ImageProgress() as progress:

        def done(result: CellResult, count: int, total: int) -> None:
            key = result.key
            err.print(f"[{count}/{total}] {key.model} x {key.measure} x {key.data}")

        return run_cells(cells_of(recipe, folder), engine=engine, progress=progress, done=done)


def _finish(recipe: Recipe, folder: Path, results: list[CellResult]) -> None:
    from stockpot.cli.scores import print_scores

    if not results:
        return
    print_scores(results)
    if recipe.report is not None:
        from stockpot.report.figures import run_figures
        from stockpot.report.page import write_page
        from stockpot.report.scatter import Axes

        page = write_page(
            results,
            folder / recipe.report.out,
            title=recipe.report.title,
            subtitle=recipe.report.subtitle,
            axes=[Axes(s.across, s.up, s.title) for s in recipe.report.scatter],
            figures=run_figures(folder),
        )
        typer.echo(f"\nreport: {page}")


def _say_plan(file: RecipeFile, folder: Path) -> None:
    from stockpot.cli.plan import build_order, measured

    for name in build_order(file):
        state = "there" if (folder / "models" / name).exists() else "to make"
        typer.echo(f"model   {name}: {state}")
    for model, entry in measured(file.recipe):
        there = list((folder / "results").glob(f"{model}--{entry.measure}--{entry.data}--*.json"))
        state = "there (if nothing changed)" if there else "to measure"
        typer.echo(f"measure {model} x {entry.measure} x {entry.data}: {state}")
    if file.recipe.report:
        typer.echo(f"report  {folder / file.recipe.report.out}")
