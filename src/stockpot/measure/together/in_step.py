"""The cells of one task, each model's a step at a time until all are whole.

Models that see the same pictures take each step together. Once only statistics are left, as their
measure says (`NUMBERS`), those of all models are done beside each other.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from stockpot.engine import device_name
from stockpot.engine.cores import usable_cores
from stockpot.engine.stages import Clock, stage
from stockpot.measure import measures
from stockpot.measure.in_memory import Ran, in_memory
from stockpot.measure.measurement import Context, Measurement, Progress
from stockpot.measure.together.open_cell import OpenCell
from stockpot.measure.together.pictures import Pictures
from stockpot.measure.together.steps import NUMBERS, Step, Steps, steps_of
from stockpot.models.classifier import evaluating
from stockpot.results.schema import CellResult, Cost
from stockpot.score.predictions import Watch, watching


class End(NamedTuple):
    """What became of the cell of a number."""

    number: int
    result: CellResult | None
    error: Exception | None = None


@dataclass
class _Under:
    """A cell under way, and what it has taken so far."""

    opened: OpenCell
    context: Context
    steps: Steps[Measurement]
    watch: Watch
    left: Step = None
    """`NUMBERS` once nothing is left but statistics."""
    seconds: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)


def in_step(cells: dict[int, OpenCell], progress: Progress, clock: Clock) -> Iterator[End]:
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
            for number, found in _round(dict(under), pictures):
                if found is None:
                    continue
                if isinstance(found, torch.OutOfMemoryError):
                    too_large[number] = under.pop(number).opened
                    continue
                if isinstance(found, Exception):
                    del under[number]
                    yield End(number, None, found)
                    continue
                _divide(clock.taken(), under.values())
                one = under.pop(number)
                seconds = one.seconds + pictures.seconds / len(cells)
                yield _finished(number, one.opened, found, seconds, one.stages, len(cells))
    del pictures
    for number, opened in too_large.items():
        yield alone(number, opened, progress, clock)


def _round(
    under: dict[int, _Under], pictures: Pictures
) -> Iterator[tuple[int, Ran | Exception | None]]:
    """A step of every cell; statistics of several cells beside each other."""
    numbers = {number: one for number, one in under.items() if one.left == NUMBERS}
    if len(numbers) > 1:
        start = time.perf_counter()
        with ThreadPoolExecutor(min(len(numbers), usable_cores())) as threads, stage("score"):
            found = list(threads.map(_last_step, numbers.values()))
        for one in numbers.values():
            one.seconds += (time.perf_counter() - start) / len(numbers)
        yield from zip(numbers, found, strict=True)
    for number, one in under.items():
        if len(numbers) > 1 and number in numbers:
            continue
        start, before = time.perf_counter(), pictures.seconds
        step = _step(one)
        one.seconds += time.perf_counter() - start - (pictures.seconds - before)
        yield number, step


@torch.inference_mode()  # a thread has a mode of its own
def _last_step(one: _Under) -> Ran | Exception | None:
    return _step(one)


def _step(one: _Under) -> Ran | Exception | None:
    """A step of a cell: what it found if it was the last one, or why there is no other."""
    try:
        with stage("score"):
            one.left = next(one.steps)
    except StopIteration as whole:
        return Ran(whole.value, one.watch, one.context)
    except Exception as problem:
        return problem
    return None


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


def alone(number: int, opened: OpenCell, progress: Progress, clock: Clock) -> End:
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
