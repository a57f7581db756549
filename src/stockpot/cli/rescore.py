"""`stockpot rescore DIR`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stockpot.cli.options import examples

NAME = "rescore"
EXAMPLES = examples(
    "stockpot rescore runs/demo",
    "stockpot rescore runs/demo/results/icons-resnet--clean--icons--5e84b30a40aa.json",
)


def command(
    folders: Annotated[list[Path], typer.Argument(help="Run folders or result files.")],
) -> None:
    """Compute scores and intervals anew from saved outcomes, without running any model."""
    from stockpot.measure.rescore import rescore
    from stockpot.results.store import result_files

    found = rescore(*folders)
    for each in found:
        state = f"{len(each.changes)} changed" if each.changes else "unchanged"
        typer.echo(
            f"{each.path.name}: {each.computed} scores from outcomes, {each.kept} kept; {state}"
        )
        for change in each.changes:
            typer.echo(f"  {change}")
    without = sorted(set(result_files(*folders)) - {each.path for each in found})
    for path in without:
        typer.echo(f"{path.name}: left as it is, no outcomes are saved in it")
