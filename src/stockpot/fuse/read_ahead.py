"""Read what a walk comes to next while it works: threads that wait for the disk in its place.

They keep a bounded distance before the pieces at work. Advice to the system would not do: Linux
cuts it to the length of its own reading ahead, some hundred kilobytes.
"""

from __future__ import annotations

from collections.abc import Generator
from threading import Condition, Thread
from types import TracebackType

from stockpot.checkpoints.alignment import Alignment, Row
from stockpot.errors import UserError

AHEAD_BYTES = 128 << 20
"""How far they may be ahead, in all checkpoints together; one stretch is read however long."""


class ReadAhead:
    """Threads that read the tensors of a walk in its order."""

    def __init__(self, alignment: Alignment, step: int, threads: int) -> None:
        self._alignment = alignment
        self._step = step
        self._sources = len(alignment.members) + (alignment.base is not None)
        self._offsets: dict[str, int] = {}
        offset = 0
        for row in alignment.rows:
            self._offsets[row.name] = offset
            offset += row.info.nbytes * self._sources
        self._begun = 0  # all before this is begun, or done
        self._closed = False
        self._moved = Condition()
        self._stretches = self._all_stretches()
        self._threads = [
            Thread(target=self._run, name="read ahead", daemon=True) for _ in range(threads)
        ]

    def __enter__(self) -> ReadAhead:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._moved:
            self._closed = True
            self._moved.notify_all()
        for thread in self._threads:
            thread.join()
        # Half-way it would hold this object, and with it every open file, until the collector runs.
        self._stretches.close()

    def begin(self, row: Row, stop: int | None) -> None:
        """A row is begun up to an element (None: to its end): what follows may be read."""
        share = row.info.nbytes if stop is None else stop * row.info.dtype.itemsize
        with self._moved:
            self._begun = max(self._begun, self._offsets[row.name] + share * self._sources)
            self._moved.notify_all()

    def _all_stretches(self) -> Generator[tuple[Row, int, int], None, None]:
        for row in self._alignment.rows:
            for start in range(0, row.info.numel, self._step):
                yield row, start, min(start + self._step, row.info.numel)

    def _next(self) -> tuple[Row, int, int] | None:
        """The next stretch that nobody has begun, when its time has come."""
        with self._moved:
            for row, start, stop in self._stretches:
                size = row.info.dtype.itemsize * self._sources
                first = self._offsets[row.name] + start * size
                last = self._offsets[row.name] + stop * size
                while not self._closed and first > self._begun and last > self._limit:
                    self._moved.wait()
                if self._closed:
                    return None
                if first >= self._begun:
                    return row, start, stop
            return None

    @property
    def _limit(self) -> int:
        return self._begun + AHEAD_BYTES

    def _run(self) -> None:
        base = self._alignment.base
        while (found := self._next()) is not None:
            row, start, stop = found
            try:
                if base is not None and row.base is not None:
                    base.prefetch(row.base, start, stop)
                for source, name in zip(self._alignment.members, row.members, strict=True):
                    source.prefetch(name, start, stop)
            except (UserError, OSError):
                return  # the walk meets the same, and says it
