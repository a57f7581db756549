"""`stockpot transfer MODEL...`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from stockpot.cli.options import AsJson, DataOptions, Device, Params, Seed, Split, examples

NAME = "transfer"
EXAMPLES = examples(
    "stockpot transfer icons-resnet icons-vit icons-linf --data icons --limit 50 -p steps=5",
    "stockpot transfer a/ b/ merged/ --data photos/ --on a --on b -o runs/transfer --log-samples",
)


def command(
    models: Annotated[list[str], typer.Argument(help="Models, as SOURCE or NAME=SOURCE.")],
    data: Annotated[str, typer.Option("--data", help="A dataset's name, folder or file.")],
    search: Annotated[str, typer.Option("--with", help="adversarial or dynamic.")] = "adversarial",
    makers: Annotated[
        list[str] | None,
        typer.Option("--on", metavar="NAME", help="Search on this model only; may be repeated."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A run folder to save the results in.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Write a heat map (SVG) here.")
    ] = None,
    split: Split = None,
    limit: Annotated[int | None, typer.Option(help="At most this many images.")] = None,
    params: Params = None,
    data_option: DataOptions = None,
    seed: Seed = 0,
    device: Device = "auto",
    batch_size: Annotated[int, typer.Option(help="Images per forward pass.")] = 256,
    log_samples: Annotated[
        bool,
        typer.Option("--log-samples", help="Also write each image's answers, for `stockpot view`."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find images on each model and measure all models on them: who shares whose weakness.

    With `adversarial`, -p sets parameters of the attack (norm, eps, method, steps, ...); with
    `dynamic` those of that measure; precision=bf16 among them speeds the search up, while what the
    images do to each model is decided in full precision. Show a merge what was found on its
    members (--on), and it tells whether their weaknesses came along.
    """
    from stockpot.charts import heat_map, save, shade
    from stockpot.cli.console import ImageProgress, table
    from stockpot.cli.options import key_values, named, nested
    from stockpot.errors import UnknownNameError
    from stockpot.measure.transfer import matrix, shares, transfer
    from stockpot.results.headline import format_score

    if search not in ("adversarial", "dynamic"):
        raise UnknownNameError("search", search, ["adversarial", "dynamic"])
    settings: dict[str, Any] = nested(key_values(params, "-p"), "-p")
    options = {"split": split, "limit": limit, **key_values(data_option, "-d")}
    with ImageProgress() as progress:
        results = transfer(
            named(models, "model"), data=data, search=search, out=out, seed=seed,  # type: ignore[arg-type]
            device=device, batch_size=batch_size, data_options=options, makers=makers,
            log_samples=log_samples, progress=progress, **settings,
        )  # fmt: skip
    found = matrix(results)
    if as_json:
        typer.echo("[" + ",\n".join(result.model_dump_json() for result in results) + "]")
    else:
        rows = [["(as they are)", *map(format_score, found.clean)]]
        rows += [
            [maker, *map(format_score, scores)]
            for maker, scores in zip(found.makers, found.scores, strict=True)
        ]
        n = results[0].data.n
        table(["found on", *found.viewers], rows,
              title=f"accuracy of each column on images found on each row, n = {n}")  # fmt: skip
    if plot is not None:
        picture = heat_map(
            shares(found).tolist(), found.makers, found.viewers,
            title="accuracy (%) on images found on the row's model",
            colour=lambda value: shade(value, 0, 1), write=lambda value: f"{100 * value:.0f}",
        )  # fmt: skip
        save(picture, plot)
        typer.echo(f"written: {plot}", err=as_json)
