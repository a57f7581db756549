"""Measuring what `stockpot fuse` made: one table, and for a sweep one plot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from stockpot.cli.console import ImageProgress
from stockpot.cli.scores import print_scores
from stockpot.engine.interrupt import telling

if TYPE_CHECKING:
    from stockpot.results.schema import CellResult


def measure_fused(
    made: Mapping[str, Any],
    out: Path,
    data: str,
    options: dict[str, Any],
    measures: str,
    *,
    sweep: str | None,
    format: str | None,
) -> None:
    """Measure every model that was made and say where the scores lie."""
    from stockpot.measure.run import measure

    # Scores stand beside the model's folder, or inside the sweep's, which is not a model.
    run = out if sweep else out.with_name(f"{out.name}-scores")

    progress = ImageProgress(run)
    with telling(progress.saved), progress:
        results = measure(
            {label: str(folder) for label, folder in made.items()},
            measures,
            data=data,
            out=run,
            data_options=options,
            progress=progress,
            done=progress.finished,
        )
    print_scores(results)
    typer.echo(f"\nfused: {out}   results: {run / 'results'}")
    if sweep:
        _plot(results, sweep.partition("=")[0], run)
    if format is not None:
        from stockpot.results.exports import export

        target = run / ("scores.csv" if format == "csv" else format)
        for path in export(results, format, target):
            typer.echo(str(path))


def _plot(results: list[CellResult], key: str, run: Path) -> None:
    from stockpot.charts import Mark, curve, save
    from stockpot.results.score_tables import task_tables

    over_tasks = next(iter(task_tables(results)), None)
    if over_tasks:
        scores = {row.model: row.mean for row in over_tasks.rows if row.mean}
        metric = f"mean {over_tasks.metric} over {len(over_tasks.tasks)} tasks".replace("_", " ")
    else:
        scores = {result.key.model: result.scores[0] for result in results}
        metric = results[0].scores[0].metric.replace("_", " ")
    points = []
    for model, score in scores.items():
        low = score.value if score.ci_low is None else score.ci_low
        high = score.value if score.ci_high is None else score.ci_high
        points.append(Mark(model.partition("=")[2], score.value, low, high))
    path = save(curve(points, across=key, up=metric), run / "sweep.svg")
    typer.echo(f"plot: {path}")
