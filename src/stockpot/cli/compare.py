"""`stockpot compare A B`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from stockpot.cli.options import AsJson, Seed, examples

NAME = "compare"
EXAMPLES = examples(
    "stockpot compare runs/new runs/old",
    "stockpot compare runs/demo runs/demo --model icons-vit --against icons-resnet --margin 0.01",
)


def command(
    first: Annotated[Path, typer.Argument(help="A run folder or a result file.")],
    second: Annotated[Path, typer.Argument(help="What it is compared with.")],
    model: Annotated[str, typer.Option(help="The one model of A that is meant.")] = "",
    against: Annotated[str, typer.Option(help="The one model of B.")] = "",
    margin: Annotated[
        float, typer.Option(help="How much better, as a share; -0.01 asks for no worse.")
    ] = 0.0,
    groups: Annotated[
        list[str] | None,
        typer.Option(metavar="DATA=FILE", help="A text file with one label per image of DATA."),
    ] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Is A better than B? Paired by image (or by group of images), with a verdict per score.

    The claim is that A is better than B by more than the margin: it held, did not hold, or the
    images do not tell the two apart.
    """
    from stockpot.cli.console import out, table
    from stockpot.results.compare import compare

    found = compare(
        first, second, model=model, against=against, margin=margin, groups=_labels(groups),
        seed=seed,
    )  # fmt: skip
    if as_json:
        rows = [row._asdict() for row in found.rows]
        typer.echo(json.dumps({"rows": rows, "left_out": found.left_out}, indent=1))
        return
    wanted = f" by more than {100 * margin:g} points" if margin else ""
    table(
        ["A", "B", "data", "measure", "score", "A (%)", "B (%)", "A - B, points [95 %]", "p", "n",
         "verdict"],
        [
            [row.first, row.second, row.data, row.measure, row.metric, f"{100 * row.a:.1f}",
             f"{100 * row.b:.1f}",
             f"{100 * row.difference:+.1f} [{100 * row.low:+.1f}, {100 * row.high:+.1f}]",
             f"{row.p_value:.3f}" if row.p_value >= 0.001 else "< 0.001",
             str(row.n) if row.clusters == row.n else f"{row.n} in {row.clusters} groups",
             row.verdict]
            for row in found.rows
        ],
        title=f"A is better than B{wanted}",
    )  # fmt: skip
    for line in found.left_out:
        out.print(f"left out: {line}")


def _labels(given: list[str] | None) -> dict[str, list[str]] | None:
    from stockpot.cli.options import key_values
    from stockpot.errors import BadDataError

    found = {}
    for data, path in key_values(given, "--groups").items():
        file = Path(str(path))
        if not file.is_file():
            raise BadDataError(f"--groups {data}: {file} is not a file.")
        found[data] = file.read_text(encoding="utf-8").split()
    return found or None
