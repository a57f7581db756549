"""The cells of one task, each model's a step at a time until all are whole.

Models that see the same pictures take each step together. Of a measure that lets models join
(`joins`) a step is the next batch of the data: there a model begins when it is loaded, finds the
batches that the others have seen, and goes on whenever its next one is there. Its first step is
taken while a GPU is busy with those of others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol

import torch

from stockpot.measure import measures
from stockpot.measure.in_memory import Ran, in_memory
from stockpot.measure.measurement import Context, Measurement, Progress
from stockpot.measure.together.ends import End, Endings, Under, divide, finished
from stockpot.measure.together.open_cell import OpenCell
from stockpot.measure.together.pictures import Pictures
from stockpot.measure.together.queued import HIDES, Queued
from stockpot.measure.together.steps import NUMBERS, Steps, steps_of
from stockpot.models.classifier import evaluating
from stockpot.score.predictions import watching
from stockpot.stages import Clock, stage

_PAUSE = 0.001


class Joining(Protocol):
    """Models that come later."""

    @property
    def more(self) -> bool:
        """Whether another may come."""
        ...

    def begin(self) -> None:
        """Have them loaded: those who are there have what they need."""
        ...

    def take(self, *, wait: bool) -> Iterator[End | tuple[int, OpenCell]]:
        """Those that are there now, or at least one, and ends of cells that are not measured."""
        ...


class Nobody:
    """Nobody comes later."""

    more = False

    def begin(self) -> None:
        """Nothing."""

    def take(self, *, wait: bool) -> Iterator[End | tuple[int, OpenCell]]:
        """None."""
        return iter(())


class _Group:
    """The cells that are under way, and those of which no more than statistics is left."""

    def __init__(self, progress: Progress, clock: Clock, pictures: Pictures) -> None:
        self._progress, self._clock, self._pictures = progress, clock, pictures
        self._counted = 0.0
        self.under: dict[int, Under] = {}
        self._done: dict[int, tuple[int, int]] = {}
        self.count = 0
        """Cells that were ever under way."""
        self.too_large: dict[int, OpenCell] = {}
        self._queued = Queued()

    def add(self, number: int, opened: OpenCell, around: ExitStack) -> None:
        """A cell before its first step."""
        around.enter_context(evaluating(opened.model))
        context = opened.context(self._told(number), self._pictures)
        watch = around.enter_context(watching(opened.model))
        self.under[number] = Under(number, opened, context, _begun(opened, context), watch)
        self.count += 1

    def _told(self, number: int) -> Progress:
        """How far a cell is; where each goes its own way, how far all of them are."""

        def told(what: str, done: int, total: int) -> None:
            self._done[number] = (done, total)
            all_done, all_total = (sum(each) for each in zip(*self._done.values(), strict=True))
            self._progress(what, all_done, all_total)

        return told if self._pictures.room else self._progress

    @property
    def hides(self) -> bool:
        """Whether a GPU has enough to do for Python to open another model meanwhile."""
        return not self._pictures.room or self._queued.seconds >= HIDES

    def choose(self) -> Under | None:
        """Who takes the next step: the first that need not wait, or whoever is behind.

        Before a first step Python prepares much. A GPU with enough to do does not wait for that, so
        it is the moment for one who is new, whoever's turn it is. None where nobody is under way.
        """
        under = self.under.values()
        if self._pictures.room:
            new = [one for one in under if not one.taken]
            for one in [*new, *under] if new and self.hides else under:
                if self._pictures.ready(one.taken):
                    return one
        return min(under, key=lambda one: one.taken, default=None)

    def keep(self, more: bool) -> None:
        """Tell the pictures what may still be asked for: all, while somebody may begin."""
        places = [one.taken for one in self.under.values()]
        self._pictures.floor = 0 if more or not places else min(places)

    def step(self, one: Under) -> Ran | Exception | None:
        """A step of a cell; to wait for pictures is nobody's own time."""
        start, before = time.perf_counter(), self._pictures.seconds
        found = one.step()
        if self._pictures.room:
            self._queued.add(one.opened.device, one.number)
        one.seconds += time.perf_counter() - start - (self._pictures.seconds - before)
        return found

    def leave(self, one: Under) -> None:
        """A cell asks its model no more: what has passed until now is counted.

        While others are under way nobody waits for the device, which would have nothing to do then:
        what is queued there counts as theirs.
        """
        among = list(self.under.values())
        divide(self._clock.taken(wait=len(among) == 1), among)
        waited, self._counted = self._pictures.seconds - self._counted, self._pictures.seconds
        for each in among:
            each.seconds += waited / len(among)
        one.together = self.count
        del self.under[one.number]


def in_step(
    cells: dict[int, OpenCell],
    progress: Progress,
    clock: Clock,
    endings: Endings,
    joining: Joining | None = None,
    room: int = 0,
) -> Iterator[End]:
    """One step of each cell in turn until all are whole; the cells have one task.

    Args:
        cells: those that are there, by number.
        progress: called as images are done.
        clock: by which time is counted.
        endings: takes over cells of which statistics are left; they end there.
        joining: models that come later.
        room: bytes of pictures that may be kept for models that are behind.
    """
    coming = joining or Nobody()
    pictures, device = Pictures(room), next(iter(cells.values())).device
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    clock.on(device)
    group = _Group(progress, clock, pictures)
    with ExitStack() as around:
        around.callback(pictures.close)
        for number, opened in cells.items():
            group.add(number, opened, around)
        while group.under or coming.more:
            group.keep(coming.more)
            one = group.choose()
            waits = one is None or not pictures.ready(one.taken)
            # With nobody to ask, or no room for what the first would ask for, others must come.
            must, several = one is None or (waits and pictures.full), group.count
            for arrival in coming.take(wait=must) if waits or group.hides else ():
                if isinstance(arrival, End):
                    yield arrival
                else:
                    group.add(*arrival, around)
            yield from endings.over()
            if waits and group.count > several:
                continue  # who has come may find a picture that is there
            if one is not None and not (waits and coming.more):
                yield from _stepped(one, group, endings)
                coming.begin()
            elif one is not None:
                with stage("decode"):  # whichever comes first, a picture or a model
                    time.sleep(_PAUSE)
    if group.too_large:  # each may take long, and who waits is told of the others first
        yield from endings.rest()
    for number, opened in group.too_large.items():
        yield alone(number, opened, progress, clock)


def _stepped(one: Under, group: _Group, endings: Endings) -> Iterator[End]:
    found = group.step(one)
    if isinstance(found, torch.OutOfMemoryError):
        group.too_large[one.number] = group.under.pop(one.number).opened
    elif isinstance(found, Exception):
        del group.under[one.number]
        yield End(one.number, None, found)
    elif found is not None:
        group.leave(one)
        yield one.finished(found)
    elif one.left == NUMBERS:
        group.leave(one)
        endings.begin(one)


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
    return finished(number, opened, ran, time.perf_counter() - start, clock.taken(), 1)
