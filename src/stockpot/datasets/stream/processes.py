"""Processes that read and decode pictures beside this one.

Threads that decode need the interpreter lock for a while at every picture. Sixteen of them decode
half of what sixteen processes do, and whoever else runs Python meanwhile, such as the one that
feeds a GPU, waits for each of them in turn. The processes are programs of their own (`decoder.py`),
so that a caller's script is not run again, and end with this one.
"""

from __future__ import annotations

import json
import mmap
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from stockpot.engine.cores import usable_cores

Pixels = np.ndarray[Any, np.dtype[np.uint8]]

_ROOM = 64 << 20
"""Bytes of pixels that one answer may have; memory is taken as it is used."""
_LEAST = 4
"""Cores below which threads do as well."""
_PROGRAM = "from stockpot.datasets.stream.decoder import main; main()"


class BrokenPictureError(Exception):
    """A picture cannot be decoded: which of those that were asked for, and why."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row


class _GoneError(Exception):
    """Nobody answers."""


class _Worker:
    def __init__(self, end: socket.socket, memory: int) -> None:
        self._stream = end.makefile("rwb")
        self._end = end
        self.region = mmap.mmap(memory, _ROOM)
        os.close(memory)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            self._stream.write(json.dumps(request).encode() + b"\n")
            self._stream.flush()
            line = self._stream.readline()
        except (OSError, ValueError) as problem:
            raise _GoneError from problem
        if not line:
            raise _GoneError
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        for part in (self._stream, self._end):
            try:
                part.close()
            except OSError:
                continue


class Decoders:
    """So many processes, which any number of threads may ask."""

    def __init__(self, count: int) -> None:
        self._workers: list[_Worker] = []
        self._free: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._lost = threading.Event()
        theirs: list[tuple[socket.socket, int]] = []
        for _ in range(count):
            mine, other = socket.socketpair()
            memory = os.memfd_create("pictures")
            os.ftruncate(memory, _ROOM)
            theirs.append((other, os.dup(memory)))
            self._workers.append(_Worker(mine, memory))
            self._free.put(self._workers[-1])
        numbers = [[end.fileno(), memory] for end, memory in theirs]
        paths = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self._server = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, json.dumps(numbers)],
            pass_fds=[number for pair in numbers for number in pair],
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for end, memory in theirs:
            end.close()
            os.close(memory)

    def decode(self, files: Sequence[Path | str], fits: Sequence[list[Any]]) -> list[Pixels] | None:
        """For each fit (`geometry.told`) the pictures, N x 3 x H x W; none where it must be done
        here.

        Raises:
            BrokenPictureError: one of them cannot be decoded.
        """
        shapes = [(len(files), 3, *fit[0]) for fit in fits]
        if sum(int(np.prod(shape)) for shape in shapes) > _ROOM:
            return None
        request = {"decode": [str(file) for file in files], "fits": list(fits)}

        def read(worker: _Worker, answer: dict[str, Any]) -> list[Pixels]:
            if "broken" in answer:
                raise BrokenPictureError(*answer["broken"])
            found, start = [], 0
            for shape in shapes:
                size = int(np.prod(shape))
                view = np.frombuffer(worker.region, np.uint8, size, start)
                found.append(view.reshape(shape).copy())
                start += size
            return found

        found: list[Pixels] | None = self._asked(request, read)
        return found

    def look(
        self, files: Sequence[Path | str], states: Sequence[str | None] | None = None
    ) -> list[list[Any]] | None:
        """What `file_check.look_at` says of each, some of them in a state that is known; none where
        it must be done here.
        """
        known = states or [None] * len(files)
        request = {"look": [[str(file), state] for file, state in zip(files, known, strict=True)]}
        found: list[list[Any]] | None = self._asked(request, lambda _, answer: answer["seen"])
        return found

    def _asked(self, request: dict[str, Any], read: Any) -> Any:
        worker = self._free.get()
        try:
            if self._lost.is_set():
                return None
            answer = worker.ask(request)
            return None if "failed" in answer else read(worker, answer)
        except _GoneError:
            self._lost.set()  # were one killed, the others' turn may come
            return None
        finally:
            self._free.put(worker)

    def close(self) -> None:
        """Let them go; those that are asked just now answer first."""
        self._lost.set()
        for _ in self._workers:
            self._free.get().close()
        for worker in self._workers:
            self._free.put(worker)
        self._server.wait()


_running: Decoders | None = None


def start(count: int | None = None) -> bool:
    """Start them, unless they run; says whether this call did."""
    global _running
    able = hasattr(os, "fork") and hasattr(os, "memfd_create") and sys.executable
    if count is None:
        count = usable_cores() if usable_cores() >= _LEAST else 0
    if _running is not None or not able or not count:
        return False
    try:
        _running = Decoders(count)
    except OSError:
        return False  # too few descriptors or no memory: threads do it
    return True


def running() -> Decoders | None:
    """Those that run."""
    return _running


def stop() -> None:
    """Let them go, if they run."""
    global _running
    found, _running = _running, None
    if found is not None:
        found.close()


@contextmanager
def decoding(wanted: bool) -> Iterator[None]:
    """Have them run meanwhile; those that ran before go on afterwards."""
    started = wanted and start()
    try:
        yield
    finally:
        if started:
            stop()
