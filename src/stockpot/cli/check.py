"""`stockpot check RULES`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from stockpot.cli.options import (
    AsJson,
    DataOptions,
    Device,
    ModelOptions,
    Seed,
    Split,
    examples,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stockpot.gate.outcome import Checked, Status
    from stockpot.gate.rules_file import Undecided

NAME = "check"
WORSE = 4
EXAMPLES = examples(
    "stockpot check rules.yaml runs/new --baseline runs/old --junit check.xml --markdown check.md",
    "stockpot check rules.yaml --model icons-vit --data icons --baseline-model icons-resnet",
)


def command(
    rules: Annotated[Path, typer.Argument(help="A YAML file of requirements.")],
    results: Annotated[
        str | None,
        typer.Argument(help="Results of the model: a run folder, FOLDER:MODEL or a result file."),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="Results that it is compared with, in the same forms.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Instead of results, a model that is measured until all is decided."),
    ] = None,
    data: Annotated[str | None, typer.Option(help="What --model is measured on.")] = None,
    baseline_model: Annotated[
        str | None, typer.Option(help="A model that is measured beside it, for a baseline.")
    ] = None,
    undecided: Annotated[
        str | None,
        typer.Option(
            metavar="pass|fail",
            help="What a rule means that the images do not decide; as the rules say, else fail.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="A folder for check.json, .xml, .md and .svg."),
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML here.")] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Write a comment for a pull request here.")
    ] = None,
    badge: Annotated[Path | None, typer.Option(help="Write an SVG badge here.")] = None,
    split: Split = None,
    limit: Annotated[int | None, typer.Option(help="At most this many images.")] = None,
    block: Annotated[int, typer.Option(help="Images of the first block; then half as many.")] = 64,
    data_option: DataOptions = None,
    model_option: ModelOptions = None,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Does a model meet requirements? Exit code 0 when it does, 4 when it does not.

    RULES is YAML. One requirement per line under `rules:`, in one of these forms, each of which may
    end in `at 95 %`:

    \b
      version: 1
      confidence: 0.95        # unless a rule says otherwise
      undecided: fail         # or pass
      measure:                # settings, by measure
        corruption: {severities: 1-3}
      rules:
        - corruption.mean_accuracy >= 0.45
        - clean.ece <= 0.1
        - adversarial.union: not worse than baseline by 1 point at 95 %
        - corruption.gaussian_noise: better than baseline by 2 points
        - clean: no class loses more than 5 points
        - corruption: no condition loses more than 3 points
        - {rule: clean >= 0.9, name: good enough, data: icons, confidence: 0.99}

    A rule holds, fails, or is not decided: each of the first two is said wrongly in at most 5 of
    100 checks (at 95 %). With results, all images are there. With --model, images are measured in
    growing blocks until each rule is decided; the error rates hold however often one looks, and
    check.json says which images were used.
    """
    from stockpot.cli.console import out as console
    from stockpot.gate.check import check
    from stockpot.gate.written.record import record

    options = {"split": split, "limit": limit}
    given = {key: value for key, value in options.items() if value is not None}
    found = check(
        rules, results, baseline=baseline, model=model, data=data, baseline_model=baseline_model,
        undecided=cast("Undecided | None", undecided), block=block, seed=seed, device=device,
        data_options={**given, **_pairs(data_option, "-d")},
        model_options=_pairs(model_option, "-m"), told=_told,
    )  # fmt: skip
    _write(found, out, junit, markdown, badge)
    if as_json:
        typer.echo(json.dumps(record(found), indent=1))
    else:
        _show(found)
        console.print(found.summary)
    if not found.passed:
        raise typer.Exit(WORSE)


def _pairs(given: list[str] | None, flag: str) -> dict[str, object]:
    from stockpot.cli.options import key_values

    return key_values(given, flag)


def _told(images: int, statuses: Sequence[Status]) -> None:
    from stockpot.cli.console import err

    decided = sum(status != "not decided" for status in statuses)
    err.print(f"{images} images: {decided} of {len(statuses)} rules decided")


def _show(found: Checked) -> None:
    from stockpot.cli.console import table

    against = f" against {found.baseline}" if found.baseline else ""
    table(
        ["rule", "outcome", "data", "what was seen"],
        [
            [str(outcome.rule), outcome.status, outcome.data, outcome.words]
            for outcome in found.outcomes
        ],
        title=f"{found.name}: {found.model}{against}",
    )


def _write(
    found: Checked, out: Path | None, junit: Path | None, markdown: Path | None, badge: Path | None
) -> None:
    from stockpot.files import write_atomic
    from stockpot.gate.written import badge as badges
    from stockpot.gate.written import junit as junits
    from stockpot.gate.written import markdown as comments
    from stockpot.gate.written.record import record

    if out is not None:
        write_atomic(out / "check.json", json.dumps(record(found), indent=1) + "\n")
    for path, name, text in (
        (junit, "check.xml", junits.junit(found)),
        (markdown, "check.md", comments.markdown(found)),
        (badge, "check.svg", badges.badge(found)),
    ):
        for place in (path, out / name if out else None):
            if place is not None:
                write_atomic(place, text)
