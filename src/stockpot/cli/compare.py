"""`stockpot compare A B`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stockpot.cli.options import AsJson, Seed, examples
from stockpot.files import write_atomic

if TYPE_CHECKING:
    from stockpot.report.comparison.page import Shown
    from stockpot.results.compare import Comparison

NAME = "compare"
EXAMPLES = examples(
    "stockpot compare runs/new runs/old",
    "stockpot compare runs/demo:icons-vit runs/demo:icons-resnet -o compared.html --pictures icons",
)


def command(
    first: Annotated[
        str, typer.Argument(help="A run folder, one model of it (FOLDER:MODEL), or a result file.")
    ],
    second: Annotated[str, typer.Argument(help="What it is compared with.")],
    model: Annotated[str, typer.Option(help="The one model of A that is meant.")] = "",
    against: Annotated[str, typer.Option(help="The one model of B.")] = "",
    margin: Annotated[
        float, typer.Option(help="How much better, as a share; -0.01 asks for no worse.")
    ] = 0.0,
    groups: Annotated[
        list[str] | None,
        typer.Option(metavar="DATA=FILE", help="A text file with one label per image of DATA."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write a self-contained page here.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Write a comment for a pull request here.")
    ] = None,
    pictures: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DATA[=SOURCE]",
            help="Show images of DATA on the page; SOURCE is where they are, if not by its name.",
        ),
    ] = None,
    top: Annotated[
        int, typer.Option(min=0, help="Changes to show each way, by class and by condition.")
    ] = 5,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Is A better than B? Paired by image (or by group of images), with a verdict per score.

    The claim is that A is better than B by more than the margin: it held (better), did not hold
    (worse), or the images do not tell the two apart. Verdicts are sure by 95 % for all rows
    together (Holm's correction); intervals are of 95 % each. What stands on other images, settings
    or conventions is listed as left out, not compared.
    """
    from stockpot.cli.console import out as console
    from stockpot.results.compare import compare
    from stockpot.results.paired.words import as_markdown

    found = compare(
        first, second, model=model, against=against, margin=margin, groups=_labels(groups),
        seed=seed, top=top,
    )  # fmt: skip
    shots = _pictures(found, pictures, out)
    if markdown is not None:
        write_atomic(markdown, as_markdown(found))
    if out is not None:
        from stockpot.report.comparison.page import comparison_page

        comparison_page(found, out, pictures=shots)
    if as_json:
        rows = [row._asdict() for row in found.rows]
        changes = [
            {**part._asdict(), "facts": part.facts.model_dump(),
             "changes": [change._asdict() for change in part.changes]}
            for part in found.changes
        ]  # fmt: skip
        document = {"rows": rows, "left_out": found.left_out, "changes": changes}
        typer.echo(json.dumps(document, indent=1))
        return
    _show(found)
    for line in found.left_out:
        console.print(f"left out: {line}")
    if out is not None:
        console.print(f"page: {out}")


def _pictures(
    found: Comparison, asked: list[str] | None, out: Path | None
) -> dict[tuple[int, str], list[Shown]]:
    from stockpot.cli.compared_pictures import compared_pictures, picture_sources
    from stockpot.errors import BadParameterError

    if not asked:
        return {}
    if out is None:
        raise BadParameterError("--pictures: they stand on the page; give -o FILE.html too.")
    return compared_pictures(found, picture_sources(asked))


def _show(found: Comparison) -> None:
    from stockpot.cli.console import out, table
    from stockpot.results.paired.words import (
        claim,
        correction,
        heading,
        interval,
        p_text,
        told_apart,
    )

    # One pair of models is named above the table, which is wide enough without them.
    pairs = {(row.first, row.second) for row in found.rows}
    named = "" if len(pairs) > 1 else " (A: {}, B: {})".format(*next(iter(pairs), ("", "")))
    both = ["A", "B"] if len(pairs) > 1 else []
    table(
        [*both, "data", "measure", "score", "A (%)", "B (%)", "A - B, points [95 %]", "p (Holm)",
         "n", "verdict"],
        [
            [*([row.first, row.second] if both else []), row.data, row.measure, row.metric,
             f"{100 * row.a:.1f}", f"{100 * row.b:.1f}", interval(row), p_text(row.p_adjusted),
             str(row.n) if row.clusters == row.n else f"{row.n} in {row.clusters} groups",
             row.verdict]
            for row in found.rows
        ],
        title=f"Claim: {claim(found)}{named}",
    )  # fmt: skip
    out.print(correction(found))
    for part in found.changes:
        told = [change for change in part.changes if told_apart(change, found.confidence)]
        if told:
            lines = ", ".join(f"{change.name} {interval(change)}" for change in told)
            out.print(f"changed: {heading(part)} ({len(told)} of {part.of} told apart): {lines}")


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
