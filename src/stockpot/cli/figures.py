"""`stockpot figures DIR`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from stockpot.cli.options import examples

NAME = "figures"
EXAMPLES = examples(
    "stockpot figures runs/demo -o figures",
    "stockpot figures runs/demo --format pdf -o paper/figures",
)


def command(
    folders: Annotated[list[Path], typer.Argument(help="Run folders or result files.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A folder.")],
    format: Annotated[str, typer.Option(help="svg, or pdf (needs 'stockpot[pdf]').")] = "svg",
) -> None:
    """Draw results as pictures for papers and slides: models beside each other, curves."""
    from stockpot.errors import BadParameterError
    from stockpot.report.figures import write_figures
    from stockpot.results.store import load_results

    if format not in ("svg", "pdf"):
        raise BadParameterError(f"--format: expected svg or pdf, got {format!r}.")
    others = [path for folder in folders for path in sorted((folder / "figures").glob("*.svg"))]
    chosen = cast("Literal['svg', 'pdf']", format)
    for path in write_figures(load_results(*folders), out, format=chosen, others=others):
        typer.echo(str(path))
