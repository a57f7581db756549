"""`stockpot push DIR REPO`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stockpot.cli.options import examples

NAME = "push"
EXAMPLES = examples(
    "stockpot push runs/demo me/my-model --model my-model",
    "stockpot push runs/demo some-org/their-model --model resnet --pr",
)


def command(
    folder: Annotated[Path, typer.Argument(help="A run folder or a result file.")],
    repo: Annotated[str, typer.Argument(help="A model repository of the hub: owner/name.")],
    model: Annotated[str, typer.Option(help="Which model, where the results are of many.")] = "",
    pull_request: Annotated[bool, typer.Option("--pr", help="Open a pull request.")] = False,
) -> None:
    """Send the scores of a model to its repository on the Hugging Face hub.

    They go into `.eval_results` and into a part of the model card; the rest of the card stays. The
    token is that of `hf auth login` or HF_TOKEN.
    """
    from stockpot.results.exports.push import push
    from stockpot.results.store import load_results

    typer.echo(push(load_results(folder), repo, model=model, pull_request=pull_request))
