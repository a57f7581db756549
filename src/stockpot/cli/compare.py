"""`stockpot compare A B`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stockpot.cli.options import AsJson, ReadIndex, Seed, examples

if TYPE_CHECKING:
    from stockpot.results.collection import Results

NAME = "compare"
EXAMPLES = examples(
    "stockpot compare runs/new runs/old",
    "stockpot compare runs/demo runs/demo --model icons-vit --against icons-resnet --margin 0.01",
    "stockpot compare --index runs/index.db --model icons-vit --against icons-resnet",
)


def command(
    first: Annotated[
        Path | None, typer.Argument(help="A run folder or a result file.", show_default=False)
    ] = None,
    second: Annotated[
        Path | None, typer.Argument(help="What it is compared with.", show_default=False)
    ] = None,
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
    index: ReadIndex = "",
    as_json: AsJson = False,
) -> None:
    """Is A better than B? Paired by image (or by group of images), with a verdict per score.

    The claim is that A is better than B by more than the margin: it held, did not hold, or the
    images do not tell the two apart. With --index, A and B are folders that the index knows;
    without them all of it is meant.
    """
    from stockpot.cli.console import out, table
    from stockpot.results.compare import compare

    sides: tuple[Path | Results, Path | Results]
    if index:
        sides = _indexed(index, first, second)
    elif first is None or second is None:
        raise typer.BadParameter("give two run folders or result files, or --index.")
    else:
        sides = first, second
    found = compare(
        *sides, model=model, against=against, margin=margin, groups=_labels(groups),
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


def _indexed(index: str, first: Path | None, second: Path | None) -> tuple[Results, Results]:
    """Both sides from an index; what is given of one is given of the other."""
    from stockpot.cli.results import warn_if_behind
    from stockpot.results.index.open import open_index

    named = [path for path in (first, second) if path is not None]
    warn_if_behind(index, named)
    with open_index(index) as opened:
        if first is None or second is None:
            everything = opened.results(*named)
            return everything, everything
        return opened.results(first), opened.results(second)


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
