"""Making the models of a recipe: what is there is reused, the rest made, several at a time.

A model whose question has changed is made beside the old one and takes its place when it is whole.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from stockpot.engine.choice import EngineChoice, chosen_engine, engine_name
from stockpot.errors import UserError
from stockpot.measure.measurement import Progress, no_progress
from stockpot.recipe import Recipe, RecipeFile
from stockpot.run.order import Order, order_of
from stockpot.run.plan import build_order, parents, waves
from stockpot.run.reuse import Verdict, judge, note_saved, put_in_place, room_for

Say = Callable[[str], None]
"""Told what was done, in one line."""


def keep_silent(line: str) -> None:
    """Say nothing."""


class Task(NamedTuple):
    """One model to make; a plain value that another process understands."""

    recipe: Recipe
    verdict: Verdict
    folder: Path


def make_models(
    file: RecipeFile,
    folder: Path,
    *,
    engine: EngineChoice = "serial",
    progress: Progress = no_progress,
    say: Say = keep_silent,
) -> dict[str, str]:
    """Make what is not there; with several workers, models that do not need each other together.

    A model that fails does not stop those beside it; the first failure is raised afterwards.

    Returns:
        The digest of every model of the recipe that is made by it.
    """
    recipe = file.recipe
    digests: dict[str, str] = {}
    for wave in waves(build_order(file), parents(recipe)):
        tasks = []
        for name in wave:
            # Parents are in place by now, so each is judged by what it would really be made from.
            verdict = judge(recipe, name, folder)
            digests[name] = verdict.digest
            if verdict.there:
                put_in_place(folder, verdict)
                say(f"{name}: already made")
            else:
                tasks.append(Task(recipe, verdict, folder))
        _carry_out(tasks, engine, progress, say)
    return digests


def _carry_out(tasks: list[Task], engine: EngineChoice, progress: Progress, say: Say) -> None:
    # A fusion without data takes less time than starting a process for it; and one training alone
    # gains nothing elsewhere.
    quick = [task for task in tasks if engine_name(engine) == "serial" or _is_quick(task)]
    quick = tasks if len(tasks) - len(quick) == 1 else quick
    for task in quick:
        say(carry_out(task, progress))
    others = [task for task in tasks if task not in quick]
    failed: list[Exception] = []
    for outcome in chosen_engine(engine).run(carry_out, others) if others else ():
        if outcome.error is not None:
            failed.append(outcome.error)
        else:
            say(outcome.value)
    if failed:
        raise failed[0]


def _is_quick(task: Task) -> bool:
    entry = task.recipe.fuse.get(task.verdict.name)
    return entry is not None and not entry.data


def carry_out(task: Task, progress: Progress = no_progress) -> str:
    """Make one model, in whatever process this is; gives a line to say."""
    verdict = task.verdict
    with room_for(task.folder, verdict.name) as out:
        order = order_of(task.recipe, verdict.name, task.folder)

        def bar(what: str, done: int, total: int) -> None:
            progress(f"{verdict.name}: {what}", done, total)

        if order.verb == "new":
            line = _new(order, out)
        elif order.verb == "harden":
            line = _harden(order, task.recipe, verdict.name, out, bar)
        elif order.verb == "season":
            line = _season(order, task.recipe, out, bar)
        elif order.verb == "tune":
            line = _tune(order, task, out, bar)
        else:
            line = _fuse(order, out, bar)
    anew = f"made anew ({verdict.why}), " if verdict.remade else ""
    return f"{verdict.name}: {anew}{line}"


def make_model(recipe: Recipe, name: str, folder: Path) -> str:
    """Make one model from its parents unless it is there already; gives a line to say."""
    verdict = judge(recipe, name, folder)
    if verdict.there:
        put_in_place(folder, verdict)
        return f"{name}: already made"
    return carry_out(Task(recipe, verdict, folder))


def _new(order: Order, out: Path) -> str:
    from stockpot.models.new import new_model

    (data,) = order.inputs
    count = new_model(order.method, data, out, **order.settings)
    return f"a new {order.method} with {count:,} parameters"


def _harden(order: Order, recipe: Recipe, name: str, out: Path, bar: Progress) -> str:
    from stockpot.engine import pick_device
    from stockpot.harden.run import harden

    def report(step: int, total: int, seen: dict[str, float]) -> None:
        bar(", ".join(f"{key} {value:.4f}" for key, value in seen.items()), step, total)

    model = harden(
        order.method,
        *order.inputs,
        out=out,
        device=str(pick_device(recipe.device)),
        report=report,
        progress=bar,
        **order.settings,
    )
    parent = recipe.harden[name].model
    return f"{order.method} from {parent}, {model.parameter_count:,} parameters"


def _fuse(order: Order, out: Path, bar: Progress) -> str:
    from stockpot.fuse.run import fuse

    (members,) = order.inputs
    fuse(order.method, members, out=out, progress=bar, **order.settings)
    if order.settings.get("save"):
        note_saved(out, str(order.settings["save"]))
    return f"{order.method} of {', '.join(members)}"


def _season(order: Order, recipe: Recipe, out: Path, bar: Progress) -> str:
    from stockpot.season.run import season

    chosen = season(
        order.method,
        *order.inputs,
        out=out,
        device=recipe.device,
        progress=bar,
        **order.settings,
    )
    parts = zip(chosen.members, chosen.weights, strict=True)
    return f"{order.method} gives " + ", ".join(f"{m} {w:.2f}" for m, w in parts)


def _tune(order: Order, task: Task, out: Path, bar: Progress) -> str:
    """Search in a folder of its own, which stays with its page; the choice becomes the model."""
    from stockpot.checkpoints.record import read_record, write_record
    from stockpot.run.reuse import record_of
    from stockpot.tune.run import MODEL, tune

    asked = record_of(order)
    # Another question is another search; the same one goes on.
    place = task.folder / "tune" / f"{task.verdict.name}-{asked.digest[:8]}"
    found = tune(
        order.method, *order.inputs, out=place, device=task.recipe.device, progress=bar,
        **order.settings,
    )  # fmt: skip
    if found.chosen is None:
        raise UserError(f"{task.verdict.name}: no trial of the search ended; see {place}.")
    made = read_record(place / MODEL)
    kept = {"seen": made.seen, "versions": made.versions, "details": made.details} if made else {}
    write_record(place / MODEL, asked.model_copy(update=kept))
    out.parent.mkdir(parents=True, exist_ok=True)
    (place / MODEL).rename(out)
    best = found.trial(found.chosen)
    values = ", ".join(f"{key} {value}" for key, value in best.params.items())
    return f"{best.method} with {values} (trial {best.number} of {len(found.trials)}; {place})"
