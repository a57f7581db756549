"""Cells of many models: loaded as many at a time as there is room for, measured in step.

Cells that ask one question of different models (measure, data, parameters, seed and options are
the same) form a task. The models of a task are loaded as long as their weights fit into
`model_room`; those that want pictures of the same size then go through the data together, each
batch decoded and corrupted once, while their weights stay for the next task. Each cell is saved as
soon as it is whole, and one that fails ends alone. The numbers are those of every cell by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from stockpot.engine import device_name
from stockpot.engine.stages import Clock, stage, timed
from stockpot.measure import measures
from stockpot.measure.in_memory import Ran, in_memory
from stockpot.measure.measurement import Context, Measurement, Progress, no_progress
from stockpot.measure.together.jobs import Asked, model_of, shares, task_of
from stockpot.measure.together.open_cell import OpenCell, open_cell
from stockpot.measure.together.pictures import Pictures, geometry
from stockpot.measure.together.steps import Steps, steps_of
from stockpot.models.classifier import evaluating
from stockpot.models.forward.passes import kept_passes
from stockpot.models.kept import holding_models, model_room, weight_bytes
from stockpot.results.schema import CellResult, Cost
from stockpot.score.predictions import Watch, watching

MOST = 32
"""Models that are measured together at most: what a GPU needs beside their weights is theirs too,
and what was done of a group is lost when it is killed."""


class End(NamedTuple):
    """What became of the cell of a number."""

    number: int
    result: CellResult | None
    error: Exception | None = None


def run_group(
    asked: Sequence[Asked],
    progress: Progress = no_progress,
    told: Callable[[End], None] | None = None,
) -> list[End]:
    """Measure cells and save them; models that are asked the same are asked together.

    Args:
        asked: the cells.
        progress: called as images are done.
        told: called with the end of every cell as it comes.
    """
    ends = []
    with timed() as clock:
        for end in _ends(asked, progress, clock):
            ends.append(end)
            if told:
                told(end)
    return ends


def _ends(asked: Sequence[Asked], progress: Progress, clock: Clock) -> Iterator[End]:
    waiting: dict[object, list[Asked]] = {}
    for one in asked:
        waiting.setdefault(model_of(one.cell), []).append(one)
    while waiting:
        with holding_models():
            opened: dict[int, OpenCell] = {}
            tasks: dict[object, list[Asked]] = {}
            held = 0
            for model, cells in list(waiting.items()):
                # Each model is loaded for the first of its cells that is not there yet.
                found: OpenCell | None = None
                while cells and found is None:
                    first = _opened(cells[0])
                    if isinstance(first, OpenCell):
                        found = first
                    else:
                        cells.pop(0)
                        yield first
                if found is None:
                    del waiting[model]
                    continue
                held += weight_bytes(found.model)
                if opened and (held > model_room(found.device) or len(opened) >= MOST):
                    break
                opened[cells[0].number] = found
                for one in waiting.pop(model):
                    task = task_of(one.cell) if shares(one.cell) else one.number
                    tasks.setdefault(task, []).append(one)
            found = None
            count = len(opened)
            for together in tasks.values():
                yield from _task(together, opened, progress, clock)
        if count > 2:
            kept_passes.cache_clear()  # as many as there were, they are not worth their memory


def _task(
    asked: Sequence[Asked], opened: dict[int, OpenCell], progress: Progress, clock: Clock
) -> Iterator[End]:
    """One question to several models: those that see the same pictures go together."""
    shared = shares(asked[0].cell)
    alike: dict[object, dict[int, OpenCell]] = {}
    for one in asked:
        found = opened.pop(one.number, None) or _opened(one)
        if isinstance(found, End):
            yield found
            continue
        if not shared:
            yield _alone(one.number, found, progress, clock)
            continue
        seen: object = geometry(found.model.preprocess)
        # One model under two names is asked twice: who watches it must not see both.
        while any(other.model is found.model for other in alike.get(seen, {}).values()):
            seen = (seen, "again")
        alike.setdefault(seen, {})[one.number] = found
    while alike:
        yield from _in_step(alike.pop(next(iter(alike))), progress, clock)


def _opened(asked: Asked) -> OpenCell | End:
    try:
        found = open_cell(asked.cell, asked.key)
    except Exception as problem:
        return End(asked.number, None, problem)
    return End(asked.number, found) if isinstance(found, CellResult) else found


@dataclass
class _Under:
    """A cell under way, and what it has taken so far."""

    opened: OpenCell
    context: Context
    steps: Steps[Measurement]
    watch: Watch
    seconds: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)


def _in_step(cells: dict[int, OpenCell], progress: Progress, clock: Clock) -> Iterator[End]:
    """One step of each cell in turn until all are whole; the cells have one task."""
    pictures, device = Pictures(), next(iter(cells.values())).device
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    clock.on(device)
    too_large: dict[int, OpenCell] = {}
    with ExitStack() as around:
        under: dict[int, _Under] = {}
        for number, opened in cells.items():
            around.enter_context(evaluating(opened.model))
            context = opened.context(progress, pictures)
            watch = around.enter_context(watching(opened.model))
            under[number] = _Under(opened, context, _begun(opened, context), watch)
        while under:
            for number, one in list(under.items()):
                start, before = time.perf_counter(), pictures.seconds
                ran: Ran | None
                try:
                    with stage("score"):
                        next(one.steps)
                    ran = None
                except StopIteration as whole:
                    ran = Ran(whole.value, one.watch, one.context)
                except torch.OutOfMemoryError:
                    too_large[number] = under.pop(number).opened
                    continue
                except Exception as problem:
                    del under[number]
                    yield End(number, None, problem)
                    continue
                one.seconds += time.perf_counter() - start - (pictures.seconds - before)
                if ran is not None:
                    _divide(clock.taken(), under.values())
                    del under[number]
                    seconds = one.seconds + pictures.seconds / len(cells)
                    yield _finished(number, one.opened, ran, seconds, one.stages, len(cells))
    del pictures
    for number, opened in too_large.items():
        yield _alone(number, opened, progress, clock)


def _begun(opened: OpenCell, context: Context) -> Steps[Measurement]:
    """A measure before its first step."""
    entry = measures.get(opened.cell.measure)
    steps = steps_of(entry.function)
    if steps is None:
        raise TypeError(f"{entry.name} does not go in steps")
    begun: Steps[Measurement] = steps(
        opened.model, opened.data, context, **entry.validate(opened.cell.params)
    )
    return begun


def _alone(number: int, opened: OpenCell, progress: Progress, clock: Clock) -> End:
    """A cell that shares nothing, or for which there is too little memory beside others."""
    if opened.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(opened.device)
    clock.on(opened.device)
    cell, context = opened.cell, opened.context(progress, Pictures())
    start = time.perf_counter()
    try:
        with stage("score"):
            ran = in_memory(cell.measure, opened.model, opened.data, context, cell.params)
    except Exception as problem:
        return End(number, None, problem)
    return _finished(number, opened, ran, time.perf_counter() - start, clock.taken(), 1)


def _divide(seconds: Mapping[str, float], under: Collection[_Under]) -> None:
    """What has passed belongs to all that are under way in equal parts."""
    for one in under:
        for name, spent in seconds.items():
            one.stages[name] = one.stages.get(name, 0.0) + spent / len(under)


def _finished(
    number: int,
    opened: OpenCell,
    ran: Ran,
    seconds: float,
    stages: Mapping[str, float],
    together: int,
) -> End:
    device = opened.device
    cost = Cost(
        wall_seconds=seconds,
        device=device_name(device),
        peak_memory_bytes=(
            torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
        ),
        images=ran.found.images,
        stages={name: round(spent, 4) for name, spent in stages.items()},
        together=together,
    )
    try:
        return End(number, opened.finish(ran, cost))
    except Exception as problem:
        return End(number, None, problem)
