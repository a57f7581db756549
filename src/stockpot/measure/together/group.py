"""Cells of many models: loaded as many at a time as there is room for, measured in step.

Cells that ask one question of different models (measure, data, parameters, seed and options are
the same) form a task. The models of a task are loaded as long as their weights fit into
`model_room`; those that want pictures of the same size then go through the data together, each
batch decoded and corrupted once, while their weights stay for the next task. Each cell is saved as
soon as it is whole, and one that fails ends alone. The numbers are those of every cell by itself.
"""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from stockpot.datasets.dataset import Dataset
from stockpot.engine import device_name
from stockpot.engine.stages import Clock, stage, timed
from stockpot.measure import measures
from stockpot.measure.cells import Cell, OpenCell, open_cell
from stockpot.measure.measurement import Context, Measurement, Progress, no_progress
from stockpot.measure.together.pictures import Pictures, geometry
from stockpot.measure.together.steps import Steps, steps_of
from stockpot.models.classifier import Classifier, evaluating
from stockpot.models.kept import holding_models, model_room, weight_bytes
from stockpot.results.schema import CellKey, CellResult, Cost
from stockpot.score.predictions import Watch, watching


class Asked(NamedTuple):
    """A cell to be measured, by a number, with its key where that is known."""

    number: int
    cell: Cell
    key: CellKey | None = None


class End(NamedTuple):
    """What became of the cell of a number."""

    number: int
    result: CellResult | None
    error: Exception | None = None


def shares(cell: Cell) -> bool:
    """Whether a cell can be measured beside others; what a model has seen is its own."""
    return not cell.unseen and steps_of(measures.get(cell.measure).function) is not None


def task_of(cell: Cell) -> tuple[object, ...]:
    """What a cell asks, whatever the model."""
    data = cell.data
    source = id(data.source) if isinstance(data.source, Dataset) else data.source
    options = json.dumps([data.options, cell.params], sort_keys=True, default=repr)
    return (
        *(cell.measure, data.name, source, options),
        *(cell.seed, cell.store, cell.device, cell.batch_size),
    )


def model_of(cell: Cell) -> tuple[object, ...]:
    """Which model a cell asks."""
    source = cell.model.source
    named = id(source) if isinstance(source, Classifier) else source
    return (cell.model.name, named, json.dumps(cell.model.options, sort_keys=True, default=repr))


def split(asked: Sequence[Asked], workers: int) -> list[list[Asked]]:
    """Jobs for so many workers: cells that go together stay together while all have work.

    One worker has one job. For several, the models are dealt out in equal parts, and where there
    are fewer models than workers, their tasks too; a cell that shares nothing is a job.
    """
    alone = [[one] for one in asked if not shares(one.cell)]
    shared = [one for one in asked if shares(one.cell)]
    if workers == 1:
        return [list(asked)] if asked else []
    models = list(dict.fromkeys(model_of(one.cell) for one in shared))
    tasks = list(dict.fromkeys(task_of(one.cell) for one in shared))
    rows = min(len(models), workers)
    columns = min(len(tasks), workers // max(rows, 1))
    jobs: dict[tuple[int, int], list[Asked]] = {}
    for one in shared:
        row = models.index(model_of(one.cell)) * rows // len(models)
        column = tasks.index(task_of(one.cell)) * columns // len(tasks)
        jobs.setdefault((row, column), []).append(one)
    return [*alone, *jobs.values()]


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


def run_apart(asked: Sequence[Asked]) -> list[End]:
    """The same in a worker process, whose answer must reach the one that asked."""
    return [end._replace(error=_sendable(end.error)) for end in run_group(asked)]


def _sendable(problem: Exception | None) -> Exception | None:
    try:
        pickle.loads(pickle.dumps(problem))
    except Exception:  # one that cannot be sent must not cost the others of its group
        return RuntimeError(f"{type(problem).__name__}: {problem}")
    return problem


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
                while cells and isinstance(found := _opened(cells[0]), End):
                    cells.pop(0)
                    yield found
                if not cells:
                    del waiting[model]
                    continue
                held += weight_bytes(found.model)
                if opened and held > model_room(found.device):
                    break
                opened[cells[0].number] = found
                for one in waiting.pop(model):
                    task = task_of(one.cell) if shares(one.cell) else one.number
                    tasks.setdefault(task, []).append(one)
            del found
            for together in tasks.values():
                yield from _task(together, opened, progress, clock)


def _task(
    asked: Sequence[Asked], opened: dict[int, OpenCell], progress: Progress, clock: Clock
) -> Iterator[End]:
    """One question to several models: those that see the same pictures go together."""
    alike: dict[object, dict[int, OpenCell]] = {}
    for one in asked:
        found = opened.pop(one.number, None) or _opened(one)
        if isinstance(found, End):
            yield found
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
    with ExitStack() as around:
        under: dict[int, _Under] = {}
        for number, opened in cells.items():
            steps = _begun(opened, opened.context(progress, pictures), around)
            under[number] = _Under(opened, steps, around.enter_context(watching(opened.model)))
        while under:
            for number, one in list(under.items()):
                start, before = time.perf_counter(), pictures.seconds
                try:
                    with stage("score"):
                        next(one.steps)
                    one.seconds += time.perf_counter() - start - (pictures.seconds - before)
                except StopIteration as whole:
                    one.seconds += time.perf_counter() - start - (pictures.seconds - before)
                    _divide(clock.taken(), under.values())
                    del under[number]
                    yield _finished(number, one, whole.value, pictures.seconds, len(cells))
                except Exception as problem:
                    del under[number]
                    yield End(number, None, problem)


def _begun(opened: OpenCell, context: Context, around: ExitStack) -> Steps[Measurement]:
    """A measure before its first step; one that is a plain function is a single step."""
    entry, params = measures.get(opened.cell.measure), opened.cell.params
    steps = steps_of(entry.function)
    if steps is not None:
        around.enter_context(evaluating(opened.model))
        begun: Steps[Measurement] = steps(
            opened.model, opened.data, context, **entry.validate(params)
        )
        return begun

    def alone() -> Steps[Measurement]:
        found: Measurement = entry(opened.model, opened.data, context, **params)
        yield
        return found

    return alone()


def _divide(seconds: Mapping[str, float], under: Collection[_Under]) -> None:
    """What has passed belongs to all that are under way in equal parts."""
    for one in under:
        for name, spent in seconds.items():
            one.stages[name] = one.stages.get(name, 0.0) + spent / len(under)


def _finished(number: int, one: _Under, found: Measurement, shared: float, count: int) -> End:
    device = one.opened.device
    cost = Cost(
        wall_seconds=one.seconds + shared / count,
        device=device_name(device),
        peak_memory_bytes=(
            torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
        ),
        images=found.images,
        stages={name: round(seconds, 4) for name, seconds in one.stages.items()},
        together=count,
    )
    try:
        return End(number, one.opened.finish(found, one.watch, cost))
    except Exception as problem:
        return End(number, None, problem)
