"""A file as memory that the system fills: few descriptors, little address space.

A stretch of a file lies in a window of it, and the windows used last, of all files, are kept: as
many as a quarter of the descriptors that this process may have, because an open window holds one.
A window that is let go of is closed when the last tensor in it is gone.

The mapping is private, because torch asks for writable memory and nobody may change the file, and
nothing is reserved for it: a file may be larger than the machine's memory. Where the system refuses
to map at all, the bytes are read into memory of our own.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import ref

import torch
from torch import Tensor

from stockpot.checkpoints.hashes import tell_read
from stockpot.errors import BadCheckpointError
from stockpot.files import open_files_allowed

_LINUX = platform.system() == "Linux"
WINDOW = 32 << 20
REACH = 4 << 20
"""How far a window goes on into the next, so that a short stretch always lies in one."""
_MOST = 256
_ROOMS = 512
"""Pieces of memory that one call fills; systems take 1024."""
_NO_RESERVE = 0x4000  # MAP_NORESERVE of Linux, which Python names from 3.13 on
_POPULATE = 22  # MADV_POPULATE_READ, since Linux 5.14


class MappedFile:
    """A file that stays as it is; it is opened when something of it is asked for."""

    def __init__(self, path: Path, facts: os.stat_result) -> None:
        self.path = path
        self.size = facts.st_size
        self._identity = _identity(facts)
        self._whole: ref[Any] | None = None

    def stretch(self, begin: int, count: int, dtype: torch.dtype) -> Tensor:
        """`count` values from the byte `begin` on, flat; they must not be written to."""
        length = count * dtype.itemsize
        start = begin - begin % WINDOW
        stop = min(start + WINDOW + REACH, self.size)
        if begin + length <= stop:
            memory = _windows.get(self, start, stop)
        else:  # longer than a window: mapped for itself, as long as it is used
            start = begin - begin % mmap.ALLOCATIONGRANULARITY
            memory = self.map(start, begin + length)
        return self._values(memory, start, begin, count, dtype)

    def whole(self, begin: int, count: int, dtype: torch.dtype) -> Tensor:
        """The same in one mapping of the whole file, for those who keep many tensors of it."""
        memory = self._whole() if self._whole is not None else None
        if memory is None:
            memory = self.map(0, self.size)
            self._whole = ref(memory) if memory is not None else None
        return self._values(memory, 0, begin, count, dtype)

    def fill(self, places: Sequence[tuple[int, Tensor]]) -> None:
        """Read what stands at these bytes into tensors of somebody's own.

        One call to the system fills as many as lie one after the other: no page of the file is
        mapped, and nobody holds the interpreter meanwhile.
        """
        descriptor = self._open()
        try:
            for begin, rooms in _runs(places):
                while rooms:
                    got = os.preadv(descriptor, rooms[:_ROOMS], begin)
                    if not got:
                        raise self._changed()
                    begin += got
                    while rooms and got >= len(rooms[0]):
                        got -= len(rooms.pop(0))
                    if got:
                        rooms[0] = rooms[0][got:]
        finally:
            os.close(descriptor)

    def fetch(self, begin: int, length: int) -> None:
        """Wait until the system has these bytes in memory, and a window of ours shows them."""
        for start in range(begin, begin + length, REACH):
            count = min(REACH, begin + length - start)
            values = self.stretch(start, count, torch.uint8)
            populate = _populate()
            if populate is None or populate(values.data_ptr(), count):
                self._read(start, count)
        tell_read(self.path, begin + length)

    def close(self) -> None:
        """Let go of the windows of this file."""
        _windows.forget(self)

    def map(self, start: int, stop: int) -> Any | None:
        """Map a part of the file; None where the system does not."""
        descriptor = self._open()
        try:
            if _LINUX:
                return mmap.mmap(
                    descriptor, stop - start, flags=mmap.MAP_PRIVATE | _NO_RESERVE, offset=start
                )
            return mmap.mmap(descriptor, stop - start, access=mmap.ACCESS_COPY, offset=start)
        except OSError:  # no address space left, or no descriptor for the mapping
            return None
        finally:
            os.close(descriptor)

    def _values(
        self, memory: Any | None, start: int, begin: int, count: int, dtype: torch.dtype
    ) -> Tensor:
        if memory is None:
            memory, start = self._read(begin, count * dtype.itemsize), begin
        return torch.frombuffer(memory, dtype=dtype, count=count, offset=begin - start)

    def _read(self, begin: int, length: int) -> bytearray:
        """Bytes of the file in memory of our own."""
        values = bytearray(length)
        view = memoryview(values)
        descriptor = self._open()
        try:
            while view:
                got = os.preadv(descriptor, [view], begin)
                if not got:
                    raise self._changed()
                view, begin = view[got:], begin + got
        finally:
            os.close(descriptor)
        return values

    def _open(self) -> int:
        try:
            descriptor = os.open(self.path, os.O_RDONLY)
        except OSError as problem:
            _windows.clear()  # where they have taken the last descriptors
            try:
                descriptor = os.open(self.path, os.O_RDONLY)
            except OSError:
                reason = problem.strerror or problem
                raise BadCheckpointError(f"{self.path}: cannot be read: {reason}.") from problem
        if _identity(os.fstat(descriptor)) != self._identity:
            os.close(descriptor)
            raise self._changed()
        return descriptor

    def _changed(self) -> BadCheckpointError:
        return BadCheckpointError(
            f"{self.path}: was changed while it was read.",
            hint="Let nothing write to a checkpoint while it is in use, and begin again.",
        )


def _runs(places: Sequence[tuple[int, Tensor]]) -> Iterator[tuple[int, list[memoryview]]]:
    """Where each run of neighbouring tensors begins, and the memory of those that have any."""
    first, end, rooms = 0, -1, list[memoryview]()
    for begin, values in sorted(places, key=lambda place: place[0]):
        if not values.numel():
            continue
        if begin != end:
            if rooms:
                yield first, rooms
            first, rooms = begin, []
        rooms.append(values.reshape(-1).view(torch.uint8).numpy().data)
        end = begin + len(rooms[-1])
    if rooms:
        yield first, rooms


class _Windows:
    """The windows used last, of all files of this process."""

    def __init__(self) -> None:
        self._open: OrderedDict[tuple[int, int], Any] = OrderedDict()
        self._lock = Lock()

    def get(self, file: MappedFile, start: int, stop: int) -> Any | None:
        key = (id(file), start)
        with self._lock:
            if key in self._open:
                self._open.move_to_end(key)
                return self._open[key]
        memory = file.map(start, stop)
        if memory is None:  # the windows themselves may have taken all address space
            self.clear()
            memory = file.map(start, stop)
        if memory is not None:
            with self._lock:
                self._open[key] = memory
                allowed = min(_MOST, max(4, open_files_allowed() // 4))
                while len(self._open) > allowed:
                    self._open.popitem(last=False)
        return memory

    def forget(self, file: MappedFile) -> None:
        with self._lock:
            for key in [key for key in self._open if key[0] == id(file)]:
                del self._open[key]

    def clear(self) -> None:
        with self._lock:
            self._open.clear()


_windows = _Windows()


def _identity(facts: os.stat_result) -> tuple[int, ...]:
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns


@cache
def _populate() -> Any | None:
    """The system call that fills mapped pages; it lets other threads run meanwhile."""
    if not _LINUX:
        return None
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

    def populate(address: int, length: int) -> bool:
        """Fill the pages of a range; says whether that failed."""
        first = address - address % mmap.PAGESIZE
        return bool(advise(first, address + length - first, _POPULATE))

    return populate
