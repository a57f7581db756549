"""`stockpot measure MODEL...`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from stockpot.cli.beginning import has_begun, settled
from stockpot.cli.options import (
    AsJson,
    BatchSize,
    CheckFiles,
    Compile,
    DataOptions,
    Device,
    EngineName,
    EngineOptions,
    Index,
    ModelOptions,
    Params,
    Precision,
    Seed,
    Split,
    To,
    engine_choice,
    examples,
    library_defaults,
)
from stockpot.cli.reading import read_ahead
from stockpot.engine.interrupt import telling
from stockpot.remote.address import shown
from stockpot.stages import stage

if TYPE_CHECKING:
    from stockpot.types import PrecisionChoice

NAME = "measure"
LIBRARY = library_defaults("stockpot.measure.run:measure")
EXAMPLES = examples(
    "stockpot measure icons-resnet icons-vit --data icons --with clean,cost",
    "stockpot measure cifar10-nominal --data cifar10 --with ood -p far=mnist,icons",
    "stockpot measure new=runs/a old=runs/b --data photos/ --with clean -o runs/compare",
    "stockpot measure runs/a --data photos/ --with corruption --precision bf16 --batch-size auto",
    "stockpot measure runs/a --data photos/ --with clean,corruption -o runs/b --to tensorboard",
)


def command(
    models: Annotated[list[str], typer.Argument(help="Models, as SOURCE or NAME=SOURCE.")],
    data: Annotated[str, typer.Option("--data", help="A dataset's name, folder or file.")],
    measures: Annotated[str, typer.Option("--with", help="Measures, by comma.")] = "clean",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A run folder, or its address, to save in.")
    ] = None,
    split: Split = None,
    limit: Annotated[int | None, typer.Option(help="At most this many images.")] = None,
    unseen_only: Annotated[
        bool,
        typer.Option("--unseen-only", help="Leave out images that the model saw when it was made."),
    ] = False,
    log_samples: Annotated[
        bool,
        typer.Option("--log-samples", help="Also write each image's answers, for `stockpot view`."),
    ] = False,
    params: Params = None,
    base: Annotated[
        str | None, typer.Option(help="What LoRA adapters are applied to, if not what they name.")
    ] = None,
    model_option: ModelOptions = None,
    data_option: DataOptions = None,
    seed: Seed = LIBRARY.seed,
    device: Device = LIBRARY.device,
    batch_size: BatchSize = LIBRARY.batch_size,
    precision: Precision = LIBRARY.precision,
    compiled: Compile = LIBRARY.compile,
    engine: EngineName = None,
    engine_option: EngineOptions = None,
    shards: Annotated[
        int, typer.Option(help="Divide the images of each cell, so that many workers share it.")
    ] = LIBRARY.shards,
    to: To = None,
    index: Index = "",
    as_json: AsJson = False,
    check_files: CheckFiles = False,
) -> None:
    """Measure models, print the scores and (with -o) save them.

    With one measure, -p sets its parameters; with several, write -p MEASURE.KEY=VALUE. An entry of
    a parameter that is a mapping is -p generator_params.autoencoder=FOLDER.
    """
    with stage("start"):
        if (engine or LIBRARY.engine) == "serial" and has_begun():
            # Whatever may change the pixels, or which pictures there are, is for the run to settle.
            plain = not (split or limit or unseen_only or base or model_option or data_option)
            first = measures.split(",")[0].strip() == "clean"
            read_ahead(models, data, again=check_files, decode=plain and first, out=out)
        from stockpot.cli.console import ImageProgress, say_where
        from stockpot.cli.options import key_values, named
        from stockpot.cli.scores import print_scores
        from stockpot.datasets.stream.file_check import reading_again
        from stockpot.measure.run import measure

        settled()
    options = {"split": split, "limit": limit, **key_values(data_option, "-d")}
    say_where(device, precision, compiled)
    progress = ImageProgress(out)
    with reading_again(check_files), telling(progress.saved), progress:
        results = measure(
            named(models, "model"),
            _with_params(measures, key_values(params, "-p")),
            data=data,
            out=out,
            seed=seed,
            device=device,
            batch_size=batch_size,
            precision=cast("PrecisionChoice", precision),
            compile=compiled,
            engine=engine_choice(engine, engine_option, LIBRARY.engine),
            shards=shards,
            unseen=unseen_only,
            log_samples=log_samples,
            model_options=({"base": base} if base else {}) | key_values(model_option, "-m"),
            data_options=options,
            progress=progress,
            done=progress.finished,
            to=to,
            index=index,
        )
    if as_json:
        typer.echo("[" + ",\n".join(result.model_dump_json() for result in results) + "]")
        return
    print_scores(results)
    if out is not None:
        pictures = f"   pictures: stockpot view {shown(out)}" if log_samples else ""
        typer.echo(
            f"\nresults: {shown(out, 'results')}   page: stockpot report {shown(out)}{pictures}"
        )


def _with_params(measures: str, params: dict[str, object]) -> dict[str, dict[str, object]]:
    from stockpot.cli.options import nested
    from stockpot.errors import BadParameterError

    chosen: dict[str, dict[str, object]] = {name.strip(): {} for name in measures.split(",")}
    for key, value in params.items():
        measure, dot, name = key.partition(".")
        if measure not in chosen or not dot:
            if len(chosen) > 1:
                told = f"with several measures write MEASURE.{key}=..."
                if dot:
                    told = f"{measure!r} is not among --with {measures}."
                raise BadParameterError(f"-p {key}: {told}")
            measure, name = next(iter(chosen)), key
        if name in chosen[measure]:
            raise BadParameterError(f"-p {key} is given twice.")
        chosen[measure][name] = value
    return {name: nested(own, "-p") for name, own in chosen.items()}
