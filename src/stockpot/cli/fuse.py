"""`stockpot fuse METHOD MEMBER...`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from stockpot.cli.options import DataOptions, Params, Split, examples
from stockpot.fuse.request import Options

NAME = "fuse"
EXAMPLES = examples(
    "stockpot fuse average icons-vit-plain icons-vit-colour -o runs/soup",
    "stockpot fuse ties icons-vit-plain icons-vit-colour icons-vit-cutmix --base icons-vit "
    "-p density=0.2 -p scale=0.3 -o runs/ties",
    "stockpot fuse task_arithmetic icons-vit-plain icons-vit-cutmix --base icons-vit "
    "--sweep scale=0.2,0.4,0.6,0.8,1.0 --data icons -o runs/sweep",
    "stockpot fuse adamerging icons-vit-plain icons-vit-colour --base icons-vit "
    "--task icons --task icons -p steps=20 --save runs/weights -o runs/adapted",
    "stockpot fuse task_arithmetic icons-vit-plain icons-vit-cutmix --base icons-vit "
    "--then svc --then '{subspace_boosting: {beta: 0.02}}' -o runs/boosted",
    "stockpot fuse mergekit.yaml -o runs/merged",
    "stockpot fuse clip-vit-base-patch32_TA8.yaml ties --models-root models -o runs/ties",
    "stockpot fuse ties icons-vit-plain icons-vit-colour --base icons-vit --as-lora 8 -o runs/lora",
)

PLAIN = Options()


def command(
    method: Annotated[
        str,
        typer.Argument(help="A fusion method, or a mergekit recipe or FusionBench pool (YAML)."),
    ],
    members: Annotated[
        list[str] | None, typer.Argument(help="Checkpoints, as SOURCE or NAME=SOURCE.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The folder to write; it must not exist.")
    ] = None,
    base: Annotated[str | None, typer.Option(help="What the members were tuned from.")] = None,
    params: Params = None,
    then: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STEP",
            help="What follows on the merged change: a finisher, or {NAME: {KEY: VALUE}}.",
        ),
    ] = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            "--task",
            metavar="DATA",
            help="Data to learn from, once per member: DATASET or DATASET@SPLIT, or MEMBER=...",
        ),
    ] = None,
    save: Annotated[str | None, typer.Option(help="Keep what was learned in this file.")] = None,
    load: Annotated[str | None, typer.Option(help="Use what was learned before.")] = None,
    sweep: Annotated[
        str | None, typer.Option(metavar="KEY=V1,V2,..", help="Fuse once for each value.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Tensors that are not fused.")
    ] = None,
    intersect: Annotated[
        bool, typer.Option("--intersect", help="Fuse only what all checkpoints share.")
    ] = False,
    head: Annotated[
        str, typer.Option(help="Classification heads: keep, drop, first or each.")
    ] = PLAIN.head,
    layout: Annotated[
        str | None, typer.Option(help="Names of a CLIP in the result: hf or open_clip.")
    ] = PLAIN.layout,
    dtype: Annotated[str | None, typer.Option(help="fp32, bf16, fp16, fp64.")] = None,
    max_shard: Annotated[str, typer.Option(help="The largest file.")] = f"{PLAIN.max_shard}",
    device: Annotated[str, typer.Option(help="Where the arithmetic runs.")] = PLAIN.device,
    accumulate: Annotated[str, typer.Option(help="fp32 or fp64.")] = PLAIN.accumulate,
    threads: Annotated[
        int, typer.Option(help="Worker threads, fewer to save memory; 0 is one per core.")
    ] = PLAIN.threads,
    bn: Annotated[
        str, typer.Option(help="BatchNorm statistics: linear, or recompute with --data.")
    ] = PLAIN.bn,
    as_lora: Annotated[
        int | None,
        typer.Option(metavar="RANK", help="Write a LoRA adapter over --base, as peft reads it."),
    ] = None,
    align: Annotated[
        bool, typer.Option("--align", help="Permute members towards the first before fusing.")
    ] = False,
    models_root: Annotated[
        Path | None,
        typer.Option(help="Where the models of a recipe of others lie, by hub id or name."),
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Say what it would cost, and stop.")] = False,
    data: Annotated[str | None, typer.Option(help="Measure the result on this dataset.")] = None,
    measures: Annotated[str, typer.Option("--with", help="Measures, by comma.")] = "clean",
    split: Split = None,
    limit: Annotated[int | None, typer.Option(help="At most this many images.")] = None,
    data_option: DataOptions = None,
    format: Annotated[
        str | None,
        typer.Option("--format", help="Also write the scores as csv, lm-eval, fusionbench, ..."),
    ] = None,
) -> None:
    """Fuse many checkpoints into one, out of core."""
    from stockpot.cli.options import key_values, named
    from stockpot.errors import UserError
    from stockpot.fuse import run

    chosen = key_values(params, "-p")
    if then:
        if "then" in chosen:
            raise UserError("--then and -p then are the same; give one.")
        chosen["then"] = then
    settings: dict[str, Any] = {
        "exclude": tuple(exclude or ()),
        "intersect": intersect,
        "head": head,
        "layout": layout,
        "dtype": dtype,
        "max_shard": max_shard,
        "device": device,
        "accumulate": accumulate,
        "threads": threads,
        "bn": bn,
        "save": save,
        "load": load,
        "as_lora": as_lora,
        "command": shlex.join(["stockpot", *sys.argv[1:]]),
    }
    sources: Any = named(members or [], "checkpoint")
    if method.endswith((".yaml", ".yml")):
        method, sources, base, chosen, settings = _foreign(
            method, sources, base, chosen, settings, models_root
        )
    elif models_root is not None:
        raise UserError("--models-root belongs to a recipe of another program (a YAML file).")
    if not sources:
        raise UserError("expected at least one checkpoint to fuse.")
    if align:
        from stockpot.fuse.align import align_members

        sources = align_members(sources)
    if tasks:
        settings["tasks"] = _tasks(tasks)
    if plan:
        typer.echo(str(run.plan(method, sources, base=base, **settings, **chosen)))
        return
    if out is None:
        raise UserError("expected -o OUT, a folder for the result (or --plan).")
    options = {"split": split, "limit": limit, **key_values(data_option, "-d")}
    if bn == "recompute" and not tasks:
        if data is None:
            raise UserError("--bn recompute needs --data: images to estimate the statistics from.")
        from stockpot.datasets.load import load_dataset

        settings["tasks"] = load_dataset(data, **{**options, "split": "train", "limit": None})
    from stockpot.cli.console import ImageProgress

    with ImageProgress() as bar:
        common = {"base": base, "out": out, "progress": bar, **settings, **chosen}
        if sweep:
            key, values = _sweep(sweep)
            made = run.sweep(method, sources, key=key, values=values, **common)
        else:
            made = {out.name: run.fuse(method, sources, **common)}
    if bn == "recompute":
        _tell_statistics(made)
    if as_lora is not None:
        _tell_adapter(made)
    if data is None:
        typer.echo(f"fused: {out}")
        return
    from stockpot.cli.fused_scores import measure_fused

    measure_fused(made, out, data, options, measures, sweep=sweep, format=format)


def _tell_statistics(made: dict[str, Path]) -> None:
    from stockpot.checkpoints.record import read_record
    from stockpot.cli.console import err

    for folder in made.values():
        record = read_record(folder)
        layers = record.details.get("batch_norm", {}).get("layers") if record else None
        if layers:
            err.print(f"{folder.name}: statistics of {layers} BatchNorm layers estimated anew")
        elif layers == 0:
            err.print(f"{folder.name}: no BatchNorm layers, nothing to recompute")


def _tell_adapter(made: dict[str, Path]) -> None:
    from stockpot.checkpoints.record import read_record
    from stockpot.cli.console import err

    for folder in made.values():
        record = read_record(folder)
        found = record.details.get("as_lora") if record else None
        if found:
            lost = f"{100 * found['relative_error']:.1f} % of the change is lost"
            dropped = f", with {', '.join(found['dropped'])}" if found["dropped"] else ""
            err.print(
                f"{folder.name}: LoRA of rank {found['rank']} over {found['layers']} layers, "
                f"{found['kept_whole']} norms and embeddings kept whole; {lost}{dropped}"
            )


def _tasks(given: list[str]) -> Any:
    """Names of datasets in order, or by member; one alone serves all."""
    from stockpot.cli.options import named

    found = named(given, "task")
    return found[0] if isinstance(found, list) and len(found) == 1 else found


def _foreign(
    path: str,
    sources: Any,
    base: str | None,
    params: dict[str, Any],
    settings: dict[str, Any],
    models_root: Path | None,
) -> tuple[str, Any, str | None, dict[str, Any], dict[str, Any]]:
    """A mergekit recipe, or a FusionBench pool with the method as the first further argument."""
    from dataclasses import replace

    from stockpot.cli.console import err
    from stockpot.errors import UserError
    from stockpot.fuse.foreign import read_foreign

    found = read_foreign(path, models_root=models_root)
    for ignored in found.ignored:
        err.print(f"{path}: {ignored} does not apply here and is ignored")
    method = found.method
    if found.replaceable and method is not None and len(sources) == 1:
        err.print(f"{path}: its method {method} gives way to {next(iter(sources))}")
        method, found = None, replace(found, params={})
    if method is None:
        if len(sources) != 1:
            raise UserError(f"{path} names models but no method: stockpot fuse {path} METHOD -o ..")
        method = str(next(iter(sources)))
    elif sources:
        raise UserError(
            f"{path} names its models and its method; {next(iter(sources))!r} has no place beside."
        )
    if not found.members:
        raise UserError(f"{path} names a base ({found.base}) and no members to fuse.")
    given = {key: value for key, value in settings.items() if value is not None}
    for key, value in found.options.items():
        if given.get(key, value) != value:
            err.print(f"{path}: {key} {value} gives way to --{key} {given[key]}")
    if base is not None and found.base is not None:
        err.print(f"{path}: its base gives way to --base {base}")
    for key in params:
        if key in found.params:
            err.print(f"{path}: {key} gives way to -p {key}={params[key]}")
    return (
        method,
        found.members,
        found.base if base is None else base,
        {**found.params, **params},
        {**settings, **found.options, **given},
    )


def _sweep(text: str) -> tuple[str, list[Any]]:
    from stockpot.cli.options import key_values

    ((key, values),) = key_values([text], "--sweep").items()
    return key, values if isinstance(values, list) else [values]
