"""How cells end: their statistics are done, and their results saved, beside the passes of others.

Once only statistics are left of a cell, as its measure says (`NUMBERS`), a thread takes it over: it
finishes the statistics and saves the result while other models are still being asked. What that
takes stops nobody and is in nobody's stages. Only when no model is left to be asked does the run
wait, and those cells that it waits for have that time among their stages, in equal parts.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from threading import Lock
from types import TracebackType
from typing import NamedTuple, Self

import torch

from stockpot.engine import device_name
from stockpot.engine.cores import usable_cores
from stockpot.measure.in_memory import Ran
from stockpot.measure.measurement import Context, Measurement
from stockpot.measure.together.open_cell import OpenCell
from stockpot.measure.together.steps import Step, Steps
from stockpot.results.schema import CellResult, Cost
from stockpot.score.predictions import Watch
from stockpot.stages import Clock, stage


class End(NamedTuple):
    """What became of the cell of a number."""

    number: int
    result: CellResult | None
    error: Exception | None = None


@dataclass(eq=False)
class Under:
    """A cell under way, and what it has taken so far."""

    number: int
    opened: OpenCell
    context: Context
    steps: Steps[Measurement]
    watch: Watch
    left: Step = None
    """`NUMBERS` once nothing is left but statistics."""
    taken: int = 0
    """Steps so far."""
    seconds: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)
    together: int = 1
    """With how many models it was measured, itself included."""

    def step(self) -> Ran | Exception | None:
        """A step: what was found if it was the last one, or why there is no other."""
        try:
            with stage("score"):
                self.left = next(self.steps)
                self.taken += 1
        except StopIteration as whole:
            return Ran(whole.value, self.watch, self.context)
        except Exception as problem:
            return problem
        return None

    def finished(self, ran: Ran) -> End:
        """The end of the cell, with its result saved."""
        return finished(self.number, self.opened, ran, self.seconds, self.stages, self.together)


class Endings:
    """Cells of which only statistics are left."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._threads: ThreadPoolExecutor | None = None
        self._begun: dict[Future[End | Ran], Under] = {}
        self._lock = Lock()
        self._waits = False
        """Whether the run waits for them: then it saves them itself."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        if self._threads is None:
            return
        # Whoever stops a run finds saved what was asked until then.
        self._threads.shutdown()
        for future, one in self._begun.items():
            found = future.result()
            if isinstance(found, Ran):
                one.finished(found)

    def begin(self, one: Under) -> None:
        """Take a cell over."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(usable_cores(), thread_name_prefix="statistics")
        device, made = one.opened.device, None
        if device.type == "cuda":
            made = torch.cuda.current_stream(device).record_event()
        self._begun[self._threads.submit(self._end, one, made)] = one

    def over(self) -> Iterator[End]:
        """Those that have ended since; nobody waits."""
        for future in [future for future in self._begun if future.done()]:
            found = future.result()
            one = self._begun.pop(future)
            yield found if isinstance(found, End) else one.finished(found)

    def rest(self) -> Iterator[End]:
        """All others, in their order."""
        with self._lock:
            self._waits = True
        start = time.perf_counter()
        with stage("score"):
            found = [(one, future.result()) for future, one in self._begun.items()]
        left = [one for one, end in found if not isinstance(end, End)]
        for one in left:
            one.seconds += (time.perf_counter() - start) / len(left)
        self._begun.clear()
        for one, end in found:
            if isinstance(end, End):
                yield end
                continue
            divide(self._clock.taken(), left)
            left.remove(one)
            yield one.finished(end)
        self._waits = False

    @torch.inference_mode()  # a thread has a mode of its own
    def _end(self, one: Under, made: torch.cuda.Event | None) -> End | Ran:
        found: Ran | Exception | None = None
        apart: AbstractContextManager[object] = nullcontext()
        if made is not None:
            # To bring numbers over in the queue of the passes would wait for those of other models,
            # and the driver lets nobody queue more of them meanwhile.
            made.synchronize()
            apart = torch.cuda.stream(_apart(one.opened.device))
        with apart:
            one.watch.settle()
            while found is None:
                found = one.step()
        if isinstance(found, Exception):
            return End(one.number, None, found)
        with self._lock:
            waits = self._waits
        # An index and records of images are for the thread that runs everything else.
        cell = one.opened.cell
        return found if waits or cell.index or cell.samples else one.finished(found)


@cache
def _apart(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def divide(seconds: Mapping[str, float], among: Collection[Under]) -> None:
    """What has passed belongs to all that are under way in equal parts."""
    for one in among:
        for name, spent in seconds.items():
            one.stages[name] = one.stages.get(name, 0.0) + spent / len(among)


def finished(
    number: int,
    opened: OpenCell,
    ran: Ran,
    seconds: float,
    stages: Mapping[str, float],
    together: int,
) -> End:
    """The end of a cell that was measured, with its result saved."""
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
