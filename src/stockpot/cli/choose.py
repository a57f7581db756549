"""`stockpot choose MODEL...`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stockpot.cli.options import (
    AsJson,
    DataOptions,
    Device,
    ModelOptions,
    Seed,
    Split,
    examples,
    library_defaults,
)

if TYPE_CHECKING:
    from stockpot.measure.unlabelled.choose import Choice

NAME = "choose"
LIBRARY = library_defaults("stockpot.measure.unlabelled.choose:choose")
EXAMPLES = examples(
    "stockpot choose a/ b/ c/ --data unlabelled/ --labels to_label.csv",
    "stockpot choose icons-resnet icons-vit icons-linf --data icons --limit 300 --oracle",
    "stockpot choose icons-resnet icons-vit icons-linf --data icons --source icons -s split=val",
)


def command(
    models: Annotated[list[str], typer.Argument(help="Models, as SOURCE or NAME=SOURCE.")],
    data: Annotated[
        str,
        typer.Option("--data", help="A folder of pictures without labels, or a dataset's name."),
    ],
    labels: Annotated[
        Path | None,
        typer.Option(
            "--labels",
            help="A CSV file to ask in: fill in its labels, and run the same command again.",
        ),
    ] = None,
    oracle: Annotated[
        bool, typer.Option("--oracle", help="Rehearse: the data's own labels answer.")
    ] = LIBRARY.oracle,
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            help="Labelled images of the kind the models were made for: foretells accuracies.",
        ),
    ] = None,
    source_option: Annotated[
        list[str] | None,
        typer.Option("--source-option", "-s", metavar="KEY=VALUE", help="An option of the source."),
    ] = None,
    method: Annotated[
        str, typer.Option("--method", help="active_testing, coda or random.")
    ] = LIBRARY.method,
    budget: Annotated[int, typer.Option(help="At most so many labels.")] = LIBRARY.budget,
    sure: Annotated[
        float, typer.Option(help="Ask no more once a model is best with this probability.")
    ] = LIBRARY.sure,
    batch: Annotated[
        int, typer.Option(help="Pictures to ask for at a time, in the file.")
    ] = LIBRARY.batch,
    rate: Annotated[
        float, typer.Option(help="For coda: how much a label counts beside the consensus.")
    ] = LIBRARY.rate,
    split: Split = None,
    limit: Annotated[int | None, typer.Option(help="At most this many images.")] = None,
    model_option: ModelOptions = None,
    data_option: DataOptions = None,
    seed: Seed = LIBRARY.seed,
    device: Device = LIBRARY.device,
    batch_size: Annotated[int, typer.Option(help="Images per forward pass.")] = LIBRARY.batch_size,
    as_json: AsJson = False,
) -> None:
    """Find out which model is best on images without labels, asking for few of them or none.

    Without --labels and --oracle nothing is asked: the models are ranked by their consensus, and
    with --source also by the accuracy that each is foretold.
    """
    import json

    from stockpot.cli.console import ImageProgress
    from stockpot.cli.options import key_values, named
    from stockpot.errors import BadParameterError, UnknownNameError
    from stockpot.measure.unlabelled.choose import choose

    if method not in (known := ["coda", "active_testing", "random"]):
        raise UnknownNameError("method", method, known)
    if source_option and source is None:
        raise BadParameterError("-s is an option of --source, which is not given.")
    options = {"split": split, "limit": limit, **key_values(data_option, "-d")}
    chosen: Any = source and {"dataset": source, **key_values(source_option, "-s")}
    with ImageProgress() as progress:
        found = choose(
            named(models, "model"), data=data, labels=labels, oracle=oracle, source=chosen,
            method=method, budget=budget, sure=sure, batch=batch, rate=rate, seed=seed,  # type: ignore[arg-type]
            device=device, batch_size=batch_size, model_options=key_values(model_option, "-m"),
            data_options={key: value for key, value in options.items() if value is not None},
            progress=progress,
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(found.plain(), indent=1))
    else:
        _print(found, labels)


def _print(found: Choice, labels: Path | None) -> None:
    from stockpot.cli.console import out, table
    from stockpot.results.headline import format_score

    columns = ["model", "P(best) %"]
    methods = list(next(iter(found.estimates.values()), {}))
    columns += [f"{name} %" for name in methods]
    if found.accuracy:
        columns.append("accuracy %")
    rows = []
    for name, share in sorted(found.probability.items(), key=lambda pair: -pair[1]):
        row = [name, f"{100 * share:.1f}"]
        for method in methods:
            value, interval = found.estimates[name][method]
            row.append(f"{100 * value:.1f} [{100 * interval.low:.1f}, {100 * interval.high:.1f}]")
        if found.accuracy:
            row.append(format_score(found.accuracy[name]))
        rows.append(row)
    table(columns, rows, title=f"{found.images} images, {found.labels} labels, {found.method}")
    share = 100 * found.probability[found.best]
    out.print(f"best: {found.best}, with probability {share:.1f} %, after {found.labels} labels")
    for note in found.notes:
        out.print(f"note: {note}")
    if labels is not None and found.asked:
        out.print(f"to label in {labels}: {len(found.asked)}; then run the same command again")
