"""`stockpot tune METHOD MEMBER...`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stockpot.cli.options import (
    AsJson,
    DataOptions,
    Device,
    Index,
    Params,
    Seed,
    examples,
    library_defaults,
)
from stockpot.stages import stage

if TYPE_CHECKING:
    from stockpot.results.tuning import TuneResult

NAME = "tune"
LIBRARY = library_defaults("stockpot.tune.run:tune")
EXAMPLES = examples(
    "stockpot tune ties icons-vit-plain icons-vit-colour icons-vit-cutmix --base icons-vit "
    "--data icons --trials 40 -o runs/tuned",
    "stockpot tune task_arithmetic icons-vit-plain icons-vit-colour --base icons-vit --data icons "
    "--space scale=0.1:1.5 --space weights=0:1 --sampler cma -o runs/weights",
    "stockpot tune ties,dare,task_arithmetic icons-vit-plain icons-vit-cutmix --base icons-vit "
    "--data icons --objective clean,calibration --trials 60 -o runs/front",
)


def command(
    method: Annotated[
        str, typer.Argument(help="A fusion method, or several by comma: the best is searched.")
    ],
    members: Annotated[list[str], typer.Argument(help="Checkpoints, as SOURCE or NAME=SOURCE.")],
    data: Annotated[list[str], typer.Option("--data", help="A task to judge by; once for each.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A folder; the same goes on.")],
    base: Annotated[str | None, typer.Option(help="What the members were tuned from.")] = None,
    objective: Annotated[
        str,
        typer.Option(
            help="One to three by comma: clean, worst_task, unseen, corruption, robust, "
            "calibration, entropy, nuclear_norm, or MEASURE.METRIC."
        ),
    ] = LIBRARY.objectives,
    space: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=RANGE",
            help="What to search: density=0.1:0.9, lr=1e-5:1e-3:log, reduce=mean,sum, weights=0:1; "
            "all knobs of the method by default.",
        ),
    ] = None,
    unseen: Annotated[
        list[str] | None, typer.Option(help="A task that no member was made for; once for each.")
    ] = None,
    trials: Annotated[
        int, typer.Option(help="Merges to try, those done before counted.")
    ] = LIBRARY.trials,
    sampler: Annotated[
        str, typer.Option(help="tpe, cma, random, grid or nsga2.")
    ] = LIBRARY.sampler,
    points: Annotated[int, typer.Option(help="Values of each range in a grid.")] = LIBRARY.points,
    prune: Annotated[
        str, typer.Option(help="Give poor trials up early: none, racing, median or halving.")
    ] = LIBRARY.prune,
    prefer: Annotated[
        str, typer.Option(help="Of several objectives, the one to choose from the front by.")
    ] = LIBRARY.prefer,
    storage: Annotated[
        str | None,
        typer.Option(help="A database URL that several machines share; a file in OUT by default."),
    ] = LIBRARY.storage,
    split: Annotated[str, typer.Option(help="What the search sees.")] = LIBRARY.split,
    test: Annotated[
        list[str] | None,
        typer.Option(help="Other data to score the choice on; once for each task."),
    ] = None,
    test_split: Annotated[
        str, typer.Option(help="What the choice is scored on, once, at the end.")
    ] = LIBRARY.test_split,
    no_test: Annotated[bool, typer.Option("--no-test", help="Score no test images.")] = False,
    limit: Annotated[
        int | None, typer.Option(help="At most so many validation images of each task.")
    ] = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            "--task",
            metavar="DATA",
            help="Data to learn from, for methods that do: DATASET or DATASET@SPLIT.",
        ),
    ] = None,
    params: Params = None,
    measure_param: Annotated[
        list[str] | None,
        typer.Option(metavar="MEASURE.KEY=VALUE", help="A parameter of an objective's measure."),
    ] = None,
    data_option: DataOptions = None,
    seed: Seed = LIBRARY.seed,
    device: Device = LIBRARY.device,
    batch_size: Annotated[int, typer.Option(help="Images per forward pass.")] = LIBRARY.batch_size,
    index: Index = "",
    as_json: AsJson = False,
) -> None:
    """Search a fusion's parameters, or the method itself, on validation images.

    Several of the same command may run at once and share the work; a stopped one goes on. OUT holds
    the chosen model, tune.json, and the page tune.html, which follows the search.
    """
    with stage("start"):
        from stockpot.cli.console import ImageProgress
        from stockpot.cli.options import key_values, named, nested
        from stockpot.errors import BadParameterError
        from stockpot.tune.run import tune

    ranges: dict[str, str] = {}
    for pair in space or ():
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise BadParameterError(f"--space {pair}: expected KEY=RANGE.")
        if key in ranges:
            raise BadParameterError(f"--space {key} is given twice.")
        ranges[key] = text
    with ImageProgress() as progress:
        found = tune(
            method, named(members, "checkpoint"), data, out=out, base=base, objectives=objective,
            unseen=unseen or [], space=ranges, trials=trials, sampler=sampler, points=points,  # type: ignore[arg-type]
            prune=prune, prefer=prefer, storage=storage, split=split, test=test or None,  # type: ignore[arg-type]
            test_split=None if no_test else test_split, limit=limit, tasks=tasks or None,
            measure_params=nested(key_values(measure_param, "--measure-param"), "--measure-param"),
            data_options=key_values(data_option, "-d"), seed=seed, device=device,
            batch_size=batch_size, index=index, progress=progress, **key_values(params, "-p"),
        )  # fmt: skip
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
    else:
        _print(found, out)


def _print(found: TuneResult, out: Path) -> None:
    from stockpot.cli.console import table

    if found.chosen is None:
        typer.echo("no trial ended: nothing is chosen")
        return
    best = found.trial(found.chosen)
    rows = []
    for one in found.objectives:

        def shown(value: float | None, one: object = one) -> str:
            if value is None:
                return "-"
            return f"{100 * value:.1f}" if getattr(one, "share", True) else f"{value:.4g}"

        score, choice = found.test.get(one.name), found.selection.get(one.name)
        rows.append([
            one.name, shown(best.values[one.name]),
            f"{shown(choice.value)} [{shown(choice.low)}, {shown(choice.high)}]" if choice else "-",
            f"{shown(score.value)} [{shown(score.low)}, {shown(score.high)}]" if score else "-",
            f"{shown(score.gain)} [{shown(score.gain_low)}, {shown(score.gain_high)}]"
            if score and score.gain is not None else "-",
        ])  # fmt: skip
    done = sum(one.state == "complete" for one in found.trials)
    table(
        ["objective", "validation", "of the choice", "test", "over defaults"],
        rows,
        title=f"trial {best.number} of {len(found.trials)} ({done} judged in full), {best.method}",
    )
    typer.echo(", ".join(f"{key}={value}" for key, value in best.params.items()))
    if len(found.objectives) > 1:
        typer.echo(f"front: trials {', '.join(map(str, found.front))}")
    if best.command:
        typer.echo(f"again: {best.command}")
    typer.echo(f"model: {out / 'model'}\npage: {out / 'tune.html'}")
