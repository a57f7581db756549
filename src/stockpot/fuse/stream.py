"""Walk over aligned checkpoints tensor by tensor, with a few threads and little memory.

A tensor is cut into stretches that fit a core's cache when the work is elementwise, and taken
whole otherwise. The cut depends on the tensor alone, never on the number of threads, so the
result has the same bits however it was computed. Other threads read what comes next meanwhile
(`read_ahead.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from threading import Lock, Thread
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stockpot.checkpoints.adapter import AdapterSource
from stockpot.checkpoints.alignment import Alignment, Row
from stockpot.checkpoints.source import Source
from stockpot.engine import pick_device
from stockpot.errors import BadParameterError
from stockpot.fuse.finite import Inputs
from stockpot.fuse.fuser import (
    Factors,
    Fuser,
    Pass,
    Peers,
    Slab,
    StagedFuser,
    Stages,
    SurveyFuser,
    SwitchFuser,
    TensorFuser,
)
from stockpot.fuse.read_ahead import ReadAhead

STRETCH = 1 << 18
"""Elements of a stretch: one megabyte in fp32, so that a few of them stay in cache."""
DEVICE_STRETCH = 1 << 24
_CORES = os.cpu_count() or 1

Ready = TensorFuser | SurveyFuser | SwitchFuser


def device_for(asked: str, *, heavy: bool) -> torch.device:
    """Where to compute; `auto` takes an accelerator only for heavy arithmetic.

    A merge that takes a few operations for every weight waits for its files anywhere, and on an
    accelerator for the way there and back too (docs/performance.md).
    """
    return pick_device("cpu" if asked == "auto" and not heavy else asked)


class Piece(NamedTuple):
    """A stretch of a tensor, or a whole one (`stop` is None)."""

    row: Row
    start: int
    stop: int | None


@dataclass(frozen=True)
class Stream:
    """Aligned checkpoints and how to walk over them."""

    alignment: Alignment
    device: str = "cpu"
    accumulate: torch.dtype = torch.float32
    threads: int = 0

    @property
    def workers(self) -> int:
        """The number of threads: one per core unless told, two for a GPU."""
        if self.threads:
            return self.threads
        if self.device != "cpu":
            return 2
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else _CORES

    def pieces(self, rows: Iterable[Row], elementwise: Callable[[Row], bool]) -> Iterator[Piece]:
        """The walk's steps in file order."""
        step = self.step
        for row in rows:
            if not elementwise(row):
                yield Piece(row, 0, None)
                continue
            for start in range(0, max(row.info.numel, 1), step):
                yield Piece(row, start, min(start + step, row.info.numel))

    def slab(self, piece: Piece, inputs: Inputs) -> Slab:
        """The values of a piece, read when they are used."""
        row = piece.row

        def read(index: int, start: int, stop: int | None) -> Tensor:
            source, name = self._source(row, index)
            values = source.stretch(name, start, row.info.numel if stop is None else stop)
            if stop is None:
                values = values.view(row.info.shape)
            dtype = torch.promote_types(self.accumulate, values.dtype)
            values = values.to(self.device, dtype)
            inputs.check(values, source, name)
            return values

        def factors(index: int) -> Factors | None:
            source, name = self._source(row, index)
            if not isinstance(source, AdapterSource):
                return None
            found = source.factors(name, self.alignment.base)
            if found is None:
                return None
            up, down = (part.to(self.device, torch.float64) for part in found)
            for part in (up, down):
                inputs.check(part, source, name)
            return up, down

        count, step = len(row.members), self.step
        based = self.alignment.base is not None and row.base is not None

        def peers() -> Peers:
            rows = self._rows
            return Peers(
                {name: other.info for name, other in rows.items()},
                lambda name: self.slab(piece._replace(row=rows[name]), inputs),
            )

        return Slab(
            row.name, row.info, read, count, step, piece.start, piece.stop,
            based=based, peers=peers, factors=factors,
        )  # fmt: skip

    @cached_property
    def _rows(self) -> dict[str, Row]:
        return {row.name: row for row in self.alignment.rows}

    @property
    def step(self) -> int:
        """Elements of a stretch."""
        return STRETCH if self.device == "cpu" else DEVICE_STRETCH

    def _source(self, row: Row, index: int) -> tuple[Source, str]:
        if index >= 0:
            return self.alignment.members[index], row.members[index]
        if self.alignment.base is None or row.base is None:
            raise LookupError("a method that is not marked as needing a base asked for it")
        return self.alignment.base, row.base

    def walk(self, pieces: Iterable[Piece], work: Callable[[Slab], None]) -> None:
        """Do the work on every piece; the first error stops all.

        A worker takes its next piece when it has done with the last one, so that nothing waits in
        a queue however long the walk is.
        """
        left, lock = iter(pieces), Lock()
        errors: list[BaseException] = []
        ahead = ReadAhead(self.alignment, STRETCH, min(4, max(1, self.workers // 2)))

        def take() -> Piece | None:
            with lock:
                return None if errors else next(left, None)

        def run() -> None:
            try:
                while (piece := take()) is not None:
                    ahead.begin(piece.row, piece.stop)
                    inputs = Inputs()
                    try:
                        work(self.slab(piece, inputs))
                    finally:  # what a method made of values that are no numbers is not the reason
                        inputs.settle()
            except BaseException as problem:
                errors.append(self._too_small() if _is_memory(problem) else problem)

        if torch.device(self.device).type == "cuda":
            _open_linear_algebra(self.device)
        threads = [Thread(target=run, name="fuse") for _ in range(self.workers)]
        with _one_torch_thread(), ahead:
            for thread in threads:
                thread.start()
            try:
                for thread in threads:
                    thread.join()
            except BaseException as problem:  # an interrupt: the workers end with their piece
                errors.insert(0, problem)
                for thread in threads:
                    thread.join()
        if errors:
            raise errors[0]

    def _too_small(self) -> BadParameterError:
        return BadParameterError(
            f"device: {self.device} has too little memory for this merge; nothing was written.",
            hint="Give threads=1 (--threads 1), or fuse where there is more memory."
            if self.device == "cpu"
            else "Give device=cpu (--device cpu).",
        )

    def gather(self, passes: Sequence[Pass], rows: Sequence[Row]) -> list[Any]:
        """Run several passes in one walk."""
        count = len(self.alignment.members)
        elementwise = all(look.elementwise for look in passes)
        pieces = self.pieces(rows, lambda row: elementwise)
        free: list[list[Any]] = []
        made: list[list[Any]] = []

        def work(slab: Slab) -> None:
            # list.pop and append are atomic: each worker borrows a set of accumulators.
            try:
                mine = free.pop()
            except IndexError:
                mine = [look.begin(count) for look in passes]
                made.append(mine)
            for look, seen in zip(passes, mine, strict=True):
                look.observe(seen, slab)
            free.append(mine)

        self.walk(pieces, work)
        return [look.finish([part[i] for part in made]) for i, look in enumerate(passes)]

    def prepare(self, fusers: Sequence[Fuser], rows: Sequence[Row]) -> list[Ready]:
        """Run the stages of staged fusers, in step, until each is ready to merge."""
        ready: dict[int, Ready] = {}
        going: list[tuple[int, Stages, Any]] = []
        for index, fuser in enumerate(fusers):
            if isinstance(fuser, StagedFuser):
                going.append((index, fuser.stages(), None))
            else:
                ready[index] = fuser
        while going:
            waiting: list[tuple[int, Stages, Pass]] = []
            for index, stages, result in going:
                try:
                    waiting.append((index, stages, stages.send(result)))
                except StopIteration as done:
                    ready[index] = done.value
            if not waiting:
                break
            # What was found may be large, and is not kept while the next is looked for.
            going, result = [], None
            distinct = list(dict.fromkeys(look for _, _, look in waiting))
            found = dict(zip(distinct, self.gather(distinct, rows), strict=True))
            going = [(index, stages, found[look]) for index, stages, look in waiting]
            del found
        return [ready[index] for index in range(len(fusers))]


@cache
def _open_linear_algebra(device: str) -> None:
    """Let torch load its library of decompositions for GPUs, which two threads at once cannot."""
    torch.linalg.eigh(torch.eye(2, dtype=torch.float64, device=device))


def _is_memory(problem: BaseException) -> bool:
    """Whether memory ran out; of the CPU's, torch says so in words only."""
    in_words = "can't allocate memory" in str(problem)
    return isinstance(problem, torch.OutOfMemoryError | MemoryError) or in_words


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    """Let our threads share the cores instead of torch's, which would only get in their way.

    Also for a single worker: a product computed by several threads may differ in its last bits.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
