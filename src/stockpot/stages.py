"""Where the time of a run goes: seconds by stage, and every stage as an event of a trace.

    with timed() as clock:
        with stage("decode"): ...
    clock.taken()  # {"decode": 1.2, "other": 0.1}

Every moment belongs to one stage, the innermost one, so that the seconds add up to the time that
passed; what no stage claims is `other`. Stages of other threads run beside the run and do not
count: a run that waits for its decoders is in the stage in which it waits.

What a part of it took, such as the making of one model, is told without taking anything away:

    spent = Spent()
    ...
    spent.told()  # {"seconds": 1.3, "stages": {"decode": 1.2, "other": 0.1}}

A GPU works through a queue, and Python is ahead of it. Once a clock was told of one (`on`), it
puts a mark into the queue at every change of stage and counts the time between the marks: work is
counted where it ran, not where somebody happened to wait for it, and nobody waits for the clock
until `taken`. Work on further streams counts as far as the first one waits for it.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from stockpot.trace import DEVICE_LANE, Span, trace_of

if TYPE_CHECKING:
    import torch

Stage = Literal[
    "start", "load", "decode", "corrupt", "forward", "attack", "score", "write",
    "make", "look", "learn", "merge", "hash", "choose", "judge", "other",
]  # fmt: skip
"""The names there are: imports, reading models and data, waiting for pictures, changing them,
models' answers, attacks, statistics, files; making models or pages, and of models passes over
weights before they are merged, steps of learning, merging, waiting for hashes, choosing, and
judging what was chosen; and all else."""

Item = TypeVar("Item")
_PATIENCE = 512
"""Marks that may lie in the queue of a GPU before those that it has passed are counted."""


class Clock:
    """Seconds by stage of the thread that opened it; with `keep`, also every stage by itself."""

    def __init__(self, *, keep: bool = False, age: float = 0.0) -> None:
        self.keep = keep
        self.spans: list[Span] = []
        self._thread = threading.get_ident()
        self._stack: list[Stage] = []
        self._since = time.perf_counter()
        self._seconds: dict[str, float] = {"start": age} if age else {}
        self._all = dict(self._seconds)
        self._device: torch.device | None = None
        self._queue: Any = None
        self._mark: Any = None
        self._marks: deque[tuple[str, Any, Any]] = deque()
        """Stages with the marks around them that the device may not have passed yet."""
        self._zero: tuple[Any, float] | None = None
        """A mark, and when the device passed it."""
        self._lanes = {DEVICE_LANE: "device"}
        if age:
            lane = threading.get_native_id()
            self.spans.append(Span("start", lane, self._since - age, age))

    @property
    def is_here(self) -> bool:
        """Whether this thread is the one that is timed."""
        return self._thread == threading.get_ident()

    def on(self, device: torch.device) -> None:
        """Count by the queue of this device from now on, where it has one."""
        if device.type != "cuda" or device == self._device:
            return
        import torch

        self._switch()
        self._settle()
        torch.cuda.synchronize(device)
        now = time.perf_counter()
        self._count(self._running, now - self._since)
        self._device, self._queue = device, torch.cuda.current_stream(device)
        self._mark = self._marked()
        self._zero = (self._mark, now)

    def enter(self, name: Stage) -> None:
        """A stage begins."""
        self._switch()
        self._stack.append(name)

    def leave(self) -> None:
        """The innermost stage ends."""
        self._switch()
        self._stack.pop()

    def keep_span(self, name: Stage, begin: float) -> None:
        """Keep a stage of this thread, whether it is the one that is timed or runs beside it."""
        # A command knows whether stages are wanted only after it has started.
        if self.keep or name == "start":
            lane = threading.get_native_id()
            self._lanes[lane] = threading.current_thread().name
            self.spans.append(Span(name, lane, begin, time.perf_counter() - begin))

    def taken(self, *, wait: bool = True) -> dict[str, float]:
        """The seconds since the last time that this was asked.

        Args:
            wait: for the device; else what it has not passed yet is told the next time.
        """
        self._switch()
        if wait:
            self._settle()
        else:
            self._passed()
        found, self._seconds = self._seconds, {}
        return found

    def so_far(self) -> dict[str, float]:
        """All seconds since it began, whoever was told of some of them; waits for the device."""
        self._switch()
        self._settle()
        return dict(self._all)

    @property
    def _running(self) -> str:
        return self._stack[-1] if self._stack else "other"

    def _switch(self) -> None:
        """Count what has passed since the last change of stage."""
        if self._device is None:
            now = time.perf_counter()
            self._count(self._running, now - self._since)
            self._since = now
        elif (mark := self._marked()) is not None:
            self._marks.append((self._running, self._mark, mark))
            self._mark = mark
            if len(self._marks) > _PATIENCE:
                self._passed()

    def _count(self, name: str, seconds: float) -> None:
        for sums in (self._seconds, self._all):
            sums[name] = sums.get(name, 0.0) + seconds

    def _marked(self) -> Any:
        """A mark in the device's queue; none while the queue is being recorded as a graph."""
        import torch

        if torch.cuda.is_current_stream_capturing():
            return None
        mark = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        mark.record(self._queue)  # not of a second stream, should one be in use just now
        return mark

    def _passed(self) -> None:
        """Count what lies between marks that the device has passed."""
        while self._marks and self._marks[0][2].query():
            name, begin, end = self._marks.popleft()
            seconds = begin.elapsed_time(end) / 1000
            self._count(name, seconds)
            if self.keep and self._zero is not None and name != "other":
                start = self._zero[1] + self._zero[0].elapsed_time(begin) / 1000
                self.spans.append(Span(name, DEVICE_LANE, start, seconds))

    def _settle(self) -> None:
        if self._marks:
            self._marks[-1][2].synchronize()
            self._passed()

    def trace(self) -> dict[str, Any]:
        """All kept stages as a trace, and the seconds by stage beside them."""
        return trace_of(self.spans, self._lanes, self.so_far())


_clock: Clock | None = None


@contextmanager
def stage(name: Stage) -> Iterator[None]:
    """A block, or every call of a function, as a stage of the clock that runs, if one does."""
    clock = _clock
    if clock is None:
        yield
        return
    begin, here = time.perf_counter(), clock.is_here
    if here:
        clock.enter(name)
    try:
        yield
    finally:
        if here:
            clock.leave()
        clock.keep_span(name, begin)


def waited(name: Stage, source: Iterator[Item]) -> Iterator[Item]:
    """The same items, with the wait for each as a stage."""
    while True:
        with stage(name):
            try:
                item = next(source)
            except StopIteration:
                return
        yield item


@contextmanager
def timed(*, keep: bool = False, age: float = 0.0) -> Iterator[Clock]:
    """The clock of this process: the one that runs, or a new one for this block.

    Another thread that asks while a clock runs gets one by which no stage is counted.

    Args:
        keep: whether to keep every stage for a trace.
        age: seconds that count as `start`, having passed before.
    """
    global _clock
    if _clock is not None:
        _clock.keep |= keep
        yield _clock if _clock.is_here else Clock()
        return
    _clock = Clock(keep=keep, age=age)
    try:
        yield _clock
    finally:
        _clock = None


class Spent:
    """What has passed since this was made, by the clock that runs in this thread."""

    def __init__(self) -> None:
        self._clock = _clock if _clock is not None and _clock.is_here else Clock()
        self._before = self._clock.so_far()

    def stages(self) -> dict[str, float]:
        """Seconds by stage, to a hundredth; of those that took any."""
        each = {
            name: round(seconds - self._before.get(name, 0.0), 2)
            for name, seconds in self._clock.so_far().items()
        }
        return {name: seconds for name, seconds in each.items() if seconds}

    def told(self) -> dict[str, object]:
        """For the record of what was made meanwhile: all seconds, and those by stage."""
        found = self.stages()
        return {"seconds": round(sum(found.values()), 2), "stages": found}


def process_age() -> float:
    """Seconds since this process was started, to a hundredth; 0 where the system does not say."""
    try:
        fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - began)
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0
