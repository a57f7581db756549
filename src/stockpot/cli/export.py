"""`stockpot export`: results for other tools, or a model for where it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stockpot.cli.options import ModelOptions, Split, examples

NAME = "export"
EXAMPLES = examples(
    "stockpot export icons-resnet --to onnx --data icons -o shipped/icons-resnet",
    "stockpot export runs/demo --to csv -o demo.csv",
    "stockpot export runs/demo --to latex -o paper/table.tex",
    "stockpot export runs/demo --to eval-results -o cards/",
)
_MODELS = ("onnx", "torch-export")


def command(
    sources: Annotated[
        list[str], typer.Argument(metavar="MODEL|DIR...", help="A model, or run folders.")
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            "--format",
            help="A model: onnx or torch-export. Results: csv, parquet, markdown, latex, lm-eval, "
            "eval-results, model-card, fusionbench or robustbench.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="A file, or a folder for many.")],
    data: Annotated[
        str | None, typer.Option(help="Of a model: what it is compared on, and its classes.")
    ] = None,
    split: Split = None,
    limit: Annotated[int, typer.Option(help="Images to compare a model on.")] = 200,
    model_option: ModelOptions = None,
) -> None:
    """Write a model as it ships and measure what that changed, or results for another tool.

    A model becomes a folder with `model.onnx` or `model.pt2`, which takes pixels in [0, 1], and can
    be measured like any other model: `stockpot measure OUT --data D`.
    """
    if to in _MODELS:
        _model(sources, to, out, data, split, limit, model_option)
        return
    from stockpot.results.exports import export
    from stockpot.results.store import load_results

    for path in export(load_results(*map(Path, sources)), to, out):
        typer.echo(str(path))


def _model(
    sources: list[str],
    to: str,
    out: Path,
    data: str | None,
    split: str | None,
    limit: int,
    model_option: list[str] | None,
) -> None:
    from stockpot.cli.options import key_values
    from stockpot.errors import BadParameterError
    from stockpot.measure.export_model import export_model

    if len(sources) != 1:
        raise BadParameterError(f"--to {to} writes one model, got {len(sources)}.")
    done = export_model(
        sources[0],
        to,  # type: ignore[arg-type]  # it says itself what it takes
        out,
        data=data,
        split=split,
        limit=limit,
        options=key_values(model_option, "-m"),
    )
    size = sum(file.stat().st_size for file in done.file.parent.glob(f"{done.file.name}*"))
    typer.echo(f"{done.file} ({size / 1e6:.1f} MB)")
    typer.echo(f"{done.difference}.")
