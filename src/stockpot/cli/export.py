"""`stockpot export DIR`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stockpot.cli.options import examples

NAME = "export"
EXAMPLES = examples(
    "stockpot export runs/demo --format csv -o demo.csv",
    "stockpot export runs/demo --format latex -o paper/table.tex",
    "stockpot export runs/demo --format eval-results -o cards/",
)


def command(
    folders: Annotated[list[Path], typer.Argument(help="Run folders or result files.")],
    format: Annotated[
        str,
        typer.Option(
            "--format",
            help="csv, parquet, markdown, latex, lm-eval, eval-results, model-card, fusionbench "
            "or robustbench.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="A file, or a folder for many.")],
) -> None:
    """Write results in another tool's format."""
    from stockpot.results.exports import export
    from stockpot.results.store import load_results

    for path in export(load_results(*folders), format, out):
        typer.echo(str(path))
