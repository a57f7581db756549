"""Walk over aligned checkpoints tensor by tensor, with a few threads and little memory.

A tensor is cut into stretches that fit a core's cache when the work is elementwise, and taken
whole otherwise. The cut depends on the tensor alone, never on the number of threads, so the
result has the same bits however it was computed. The tensors that follow those at work are asked
for meanwhile, within `AHEAD_ROWS` and `AHEAD_BYTES`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stockpot.checkpoints.alignment import Alignment, Row
from stockpot.checkpoints.source import Source
from stockpot.errors import BadCheckpointError
from stockpot.fuse.fuser import Fuser, Pass, Slab, StagedFuser, Stages, SwitchFuser, TensorFuser

STRETCH = 1 << 18
"""Elements of a stretch: one megabyte in fp32, so that a few of them stay in cache."""
DEVICE_STRETCH = 1 << 24
AHEAD_ROWS = 8
"""Tensors that are fetched before their turn, at most."""
AHEAD_BYTES = 256 << 20
"""And their bytes in all checkpoints together; one tensor is fetched however large it is."""
_CORES = os.cpu_count() or 1

Ready = TensorFuser | SwitchFuser


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
        step = STRETCH if self.device == "cpu" else DEVICE_STRETCH
        for row in rows:
            if not elementwise(row):
                yield Piece(row, 0, None)
                continue
            for start in range(0, max(row.info.numel, 1), step):
                yield Piece(row, start, min(start + step, row.info.numel))

    def slab(self, piece: Piece) -> Slab:
        """The values of a piece, read when they are used."""
        row = piece.row

        def read(index: int) -> Tensor:
            source, name = self._source(row, index)
            values = source.read(name)
            if piece.stop is not None:
                values = values.reshape(-1)[piece.start : piece.stop]
            dtype = torch.promote_types(self.accumulate, values.dtype)
            values = values.to(self.device, dtype)
            _check_finite(values, source, name)
            return values

        return Slab(row.name, row.info, read, len(row.members), piece.start)

    def _source(self, row: Row, index: int) -> tuple[Source, str]:
        if index >= 0:
            return self.alignment.members[index], row.members[index]
        if self.alignment.base is None or row.base is None:
            raise LookupError("a method that is not marked as needing a base asked for it")
        return self.alignment.base, row.base

    def walk(self, pieces: Sequence[Piece], work: Callable[[Piece], None]) -> None:
        """Do the work on every piece; the first error stops all."""
        ahead = _ReadAhead(self.alignment, list(dict.fromkeys(piece.row for piece in pieces)))

        def step(piece: Piece) -> None:
            if piece.start == 0:
                ahead.begin(piece.row)
            work(piece)

        with _one_torch_thread(), ThreadPoolExecutor(self.workers) as pool:
            try:
                for _ in pool.map(step, pieces):
                    pass
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def gather(self, passes: Sequence[Pass], rows: Sequence[Row]) -> list[Any]:
        """Run several passes in one walk."""
        count = len(self.alignment.members)
        elementwise = all(look.elementwise for look in passes)
        pieces = list(self.pieces(rows, lambda row: elementwise))
        free: list[list[Any]] = []
        made: list[list[Any]] = []

        def work(piece: Piece) -> None:
            # list.pop and append are atomic: each worker borrows a set of accumulators.
            try:
                mine = free.pop()
            except IndexError:
                mine = [look.begin(count) for look in passes]
                made.append(mine)
            slab = self.slab(piece)
            for look, seen in zip(passes, mine, strict=True):
                look.observe(seen, slab)
            free.append(mine)

        self.walk(pieces, work)
        return [look.finish([part[i] for part in made]) for i, look in enumerate(passes)]

    def prepare(self, fusers: Sequence[Fuser], rows: Sequence[Row]) -> list[Ready]:
        """Run the stages of staged fusers, in step, until each is ready to merge."""
        ready: dict[int, Ready] = {}
        waiting: list[tuple[int, Stages, Pass]] = []
        for index, fuser in enumerate(fusers):
            if isinstance(fuser, StagedFuser):
                stages = fuser.stages()
                waiting.append((index, stages, next(stages)))
            else:
                ready[index] = fuser
        while waiting:
            distinct = list(dict.fromkeys(look for _, _, look in waiting))
            results = dict(zip(distinct, self.gather(distinct, rows), strict=True))
            still = []
            for index, stages, look in waiting:
                try:
                    still.append((index, stages, stages.send(results[look])))
                except StopIteration as done:
                    ready[index] = done.value
            waiting = still
        return [ready[index] for index in range(len(fusers))]


class _ReadAhead:
    """Asks for the rows after those at work, several at once and each of them once."""

    def __init__(self, alignment: Alignment, rows: Sequence[Row]) -> None:
        self._alignment = alignment
        self._rows = rows
        self._number = {row: index for index, row in enumerate(rows)}
        self._sources = len(alignment.members) + (alignment.base is not None)
        self._asked = 0  # rows before this one were asked for, or begun
        self._lock = Lock()

    def begin(self, row: Row) -> None:
        """A row is begun: ask for those after it, as far as the bounds allow."""
        for following in self._due(self._number[row]):
            for source, name in zip(self._alignment.members, following.members, strict=True):
                source.prefetch(name)
            if self._alignment.base is not None and following.base is not None:
                self._alignment.base.prefetch(following.base)

    def _due(self, number: int) -> list[Row]:
        with self._lock:
            first = self._asked = max(self._asked, number + 1)
            waiting = sum(self._cost(row) for row in self._rows[number + 1 : first])
            for row in self._rows[first : number + 1 + AHEAD_ROWS]:
                waiting += self._cost(row)
                if waiting > AHEAD_BYTES and self._asked > number + 1:
                    break
                self._asked += 1
            return list(self._rows[first : self._asked])

    def _cost(self, row: Row) -> int:
        return row.info.nbytes * self._sources


def _check_finite(values: Tensor, source: Source, name: str) -> None:
    # A sum is the cheapest look at every element; only a strange sum is worth a closer one.
    if torch.isfinite(values.sum()) or torch.isfinite(values).all():
        return
    kind = "NaN" if torch.isnan(values).any() else "an infinite value"
    raise BadCheckpointError(
        f"{source.label}: tensor {name!r} holds {kind}; nothing was written.",
        hint="Leave the checkpoint out, or skip the tensor with --exclude.",
    )


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
