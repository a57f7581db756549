"""Cells of many models: loaded as many at a time as there is room for, measured in step.

Cells that ask one question of different models (measure, data, parameters, seed and options are
the same) form a task. The models of a task are loaded as long as their weights fit into
`model_room`; those that want pictures of the same size then go through the data together, each
batch decoded and corrupted once, while their weights stay for the next task. Each cell is saved as
soon as it is whole, and one that fails ends alone. The numbers are those of every cell by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from stockpot.datasets.stream import ahead
from stockpot.engine import pick_device
from stockpot.engine.stages import Clock, timed
from stockpot.errors import UserError
from stockpot.measure.measurement import Progress, no_progress
from stockpot.measure.together.ahead import models_ahead
from stockpot.measure.together.in_step import End, alone, in_step
from stockpot.measure.together.jobs import Asked, model_of, shares, task_of
from stockpot.measure.together.open_cell import OpenCell, open_cell
from stockpot.measure.together.pictures import geometry
from stockpot.models.forward.passes import kept_passes
from stockpot.models.kept import holding_models, model_room, weight_bytes
from stockpot.results.schema import CellResult

MOST = 32
"""Models that are measured together at most: what a GPU needs beside their weights is theirs too,
and what was done of a group is lost when it is killed."""


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
    try:
        with timed() as clock:
            for end in _ends(asked, progress, clock):
                ends.append(end)
                if told:
                    told(end)
    finally:
        ahead.end()  # of a cell that failed before it went through its pictures
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
            with _loading(waiting):
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


def _loading(waiting: Mapping[object, Sequence[Asked]]) -> AbstractContextManager[None]:
    """Begin to load the models that are waiting, where the processor has time for it."""
    first = [cells[0] for cells in waiting.values()][:MOST]
    try:
        device = pick_device(first[0].cell.device)
    except UserError:
        return nullcontext()  # the cells themselves will fail with this
    few = len(first) < 2 or device.type == "cpu"
    return nullcontext() if few else models_ahead(first, device)


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
            yield alone(one.number, found, progress, clock)
            continue
        seen: object = geometry(found.model.preprocess)
        # One model under two names is asked twice: who watches it must not see both.
        while any(other.model is found.model for other in alike.get(seen, {}).values()):
            seen = (seen, "again")
        alike.setdefault(seen, {})[one.number] = found
    while alike:
        yield from in_step(alike.pop(next(iter(alike))), progress, clock)


def _opened(asked: Asked) -> OpenCell | End:
    try:
        found = open_cell(asked.cell, asked.key)
    except Exception as problem:
        return End(asked.number, None, problem)
    return End(asked.number, found) if isinstance(found, CellResult) else found
