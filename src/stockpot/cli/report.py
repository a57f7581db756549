"""`stockpot report DIR`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stockpot.cli.options import examples

NAME = "report"
EXAMPLES = examples(
    "stockpot report runs/demo",
    "stockpot report runs/a runs/b -o both.html",
)


def command(
    folders: Annotated[list[Path], typer.Argument(help="Run folders or result files.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page; report.html in the first folder.")
    ] = None,
    title: Annotated[str, typer.Option(help="The page's title.")] = "Stockpot report",
) -> None:
    """Make one self-contained HTML page from result files alone."""
    from stockpot.report.figures import run_figures
    from stockpot.report.page import write_page
    from stockpot.results.store import load_results

    first = folders[0] if folders[0].is_dir() else folders[0].parent
    figures = [path for folder in folders for path in run_figures(folder)]
    page = write_page(
        load_results(*folders), out or first / "report.html", title=title, figures=figures
    )
    typer.echo(f"report: {page}")
