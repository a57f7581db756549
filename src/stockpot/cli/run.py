"""`stockpot run RECIPE`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stockpot.cli.options import (
    CheckFiles,
    EngineName,
    EngineOptions,
    Index,
    To,
    engine_choice,
    examples,
)
from stockpot.engine.interrupt import telling
from stockpot.remote.address import shown
from stockpot.stages import stage

if TYPE_CHECKING:
    from stockpot.fuse.similarity import SimilarityReport
    from stockpot.recipe import RecipeFile

NAME = "run"
EXAMPLES = examples(
    "stockpot run recipes/demo.yaml",
    "stockpot run recipes/demo.yaml -o runs/two --set seed=2 --dry-run",
)


def command(
    recipe: Annotated[str, typer.Argument(help="A recipe file.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The run folder or its address, s3://bucket/run; runs/NAME by default.",
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="a.b=c", help="Change a value.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh/--resume", help="Start anew, or make only what is not there.")
    ] = False,
    log_samples: Annotated[
        bool,
        typer.Option("--log-samples", help="Also write each image's answers, for `stockpot view`."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
    engine: EngineName = None,
    engine_option: EngineOptions = None,
    to: To = None,
    index: Index = "",
    check_files: CheckFiles = False,
) -> None:
    """Follow a recipe: make models, measure them, write the report.

    A model or cell that is there already is reused where its question is the same; one whose
    method, parameters or inputs changed is made anew.
    """
    with stage("start"):
        from stockpot.cli.console import ImageProgress, err, say_where
        from stockpot.cli.scores import print_scores
        from stockpot.datasets.stream.file_check import reading_again
        from stockpot.engine.choice import checked_engine
        from stockpot.run.follow import folder_of, read, run

    asked = ["measure.log_samples=true"] if log_samples else []
    file = read(recipe, [*(overrides or ()), *asked])
    place = engine_choice(engine, engine_option, file.recipe.engine)
    checked_engine(place)
    if dry_run:
        _say_plan(file, out)
        return
    recipe_says = file.recipe
    say_where(recipe_says.device, recipe_says.precision, recipe_says.compile)
    progress = ImageProgress(folder_of(file, out))
    with reading_again(check_files), telling(progress.saved), progress:
        came = run(
            file, out=out, engine=place, fresh=fresh,
            progress=progress, say=err.print, done=progress.finished, to=to, index=index,
        )  # fmt: skip
    if came.similarity is not None and file.recipe.similarity is not None:
        _print_cosines(came.similarity, file.recipe.similarity.base)
    if came.results:
        print_scores(came.results)
    if came.report is not None:
        inside = came.report.relative_to(came.folder).as_posix() if came.address else ""
        typer.echo(f"\nreport: {shown(came.address, inside) if came.address else came.report}")


def _say_plan(file: RecipeFile, out: Path | None) -> None:
    from stockpot.run.follow import folder_of, preview

    found = preview(file, out=out)
    for model in found.models:
        state = "there" if model.there else f"to make ({model.why})"
        typer.echo(f"model   {model.name}: {state}")
    for cell in found.cells:
        wait = f" ({cell.why})" if cell.why else ""
        typer.echo(f"measure {cell}: {'there' if cell.there else f'to measure{wait}'}")
    if file.recipe.report:
        typer.echo(f"report  {shown(folder_of(file, out), file.recipe.report.out)}")


def _print_cosines(found: SimilarityReport, base: str) -> None:
    from stockpot.cli.console import table

    rows = [
        [name, f"{float(norm):.3f}", *(f"{value:.3f}" for value in cosines)]
        for name, norm, cosines in zip(found.names, found.norms, found.cosine.tolist(), strict=True)
    ]
    table(["model", "length", *found.names], rows, title=f"cosine of the changes from {base}")
