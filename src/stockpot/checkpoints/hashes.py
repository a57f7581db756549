"""The sha256 of a file, read once for every state of it, and while other work goes on.

Hashing nine ViT-B checkpoints takes two seconds of one core, as long as importing torch and
fusing them. It releases the interpreter lock, so `FileHashes` is begun first and waited for last.
Of a pool that memory does not hold, both would read every file from the disk for themselves; so of
a large one no more is hashed than others have just read (`following`), or all when it is asked for.

A hash is remembered in this process, and of large files on disk, so that a pool fused again is not
hashed again. A file is known by its device, inode, size and times of change: a new content under an
old name has another time. A file changed in the last moments is not remembered: a second change
might fall into the same tick of the clock.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from stockpot.engine.cores import usable_cores
from stockpot.files import cache_folder, keep_cached, read_cached

_BLOCK = 1 << 20
_THREADS = 2
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LARGE = 16_000_000
_MUCH = 4_000_000_000
_SETTLED = 2.0
_ENTRIES = 4096
_memory: dict[str, str] = {}
_told: list[Callable[[Path, int], None]] = []


def tell_read(path: Path, stop: int) -> None:
    """A file was just read up to this byte: whoever follows may read it from memory now."""
    for follow in tuple(_told):
        follow(path, stop)


class FileHashes:
    """Hashes of files, computed by background threads that die with the process."""

    def __init__(self, files: Iterable[Path], threads: int = _THREADS) -> None:
        self._cache = HashCache()
        self._results: dict[Path, str] = {}
        self._waiting: list[_Begun] = []
        for path in list(dict.fromkeys(files))[::-1]:
            facts = path.stat()
            known = _named_by_hash(path) or self._cache.get(_identity(facts), facts.st_size)
            if known:
                self._results[path] = known
            else:
                self._waiting.append(_Begun(path, facts.st_size))
        self._stop = threading.Event()
        self._moved = threading.Condition()
        large = sum(begun.size for begun in self._waiting) >= _MUCH
        self._reached: dict[Path, int] | None = {} if large else None
        self._failed: OSError | None = None
        self._threads = [
            threading.Thread(target=self._work, name="sha256", daemon=True)
            for _ in range(min(threads, len(self._waiting)))
        ]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        while (begun := self._next()) is not None:
            try:
                digest = _sha256(begun, self._limit)
                if digest is not None and not self._stop.is_set():
                    self._results[begun.path] = digest
                    self._cache.put(begun.path, digest)
            except OSError as problem:
                self._failed = problem
                return
            if digest is None:
                with self._moved:
                    self._waiting.append(begun)

    def _next(self) -> _Begun | None:
        """A file of which there is something to hash, when there is; none when all is done."""
        with self._moved:
            while self._waiting and not self._stop.is_set():
                for place in reversed(range(len(self._waiting))):
                    begun = self._waiting[place]
                    if self._reached is None or begun.place < self._limit(begun.path):
                        return self._waiting.pop(place)
                self._moved.wait()
            return None

    def _limit(self, path: Path) -> float:
        """The byte up to which a file may be hashed now."""
        if self._stop.is_set():
            return -1
        reached = self._reached
        # Other files are not read piece by piece, so nobody would tell of them.
        if reached is None or path.suffix != ".safetensors":
            return math.inf
        return reached.get(path, 0)

    @contextmanager
    def following(self) -> Iterator[None]:
        """While this lasts the files are read by others; after it, hash what is left."""

        def reached(path: Path, stop: int) -> None:
            with self._moved:
                if self._reached is not None:
                    self._reached[path] = max(stop, self._reached.get(path, 0))
                    self._moved.notify_all()

        _told.append(reached)
        try:
            yield
        finally:
            _told.remove(reached)
            self._free()

    def _free(self) -> None:
        with self._moved:
            self._reached = None
            self._moved.notify_all()

    def stop(self) -> None:
        """Give up; used when the run that wanted the hashes has failed."""
        self._stop.set()
        self._free()
        for thread in self._threads:
            thread.join()

    def result(self) -> dict[Path, str]:
        """Wait for, and return, the hash of every file."""
        self._free()
        for thread in self._threads:
            thread.join()
        if self._failed:
            raise self._failed
        self._cache.save()
        return dict(self._results)


def hash_ahead(folders: Iterable[Path]) -> None:
    """Hash the weights of several models at once, for whoever asks for them one by one later.

    What would not be remembered is left out, and so is what cannot be read: who asks will hear.
    """
    try:
        files = [file for folder in folders for file in folder.glob("*.safetensors")]
        settled = [file for file in files if _identity(file.stat())]
        FileHashes(settled, usable_cores()).result()
    except OSError:
        return


def _named_by_hash(path: Path) -> str | None:
    """The hub's cache names a large file by its sha256."""
    blob = path.resolve().name
    return blob if path.is_symlink() and _SHA256.fullmatch(blob) else None


class _Begun:
    """A file that is hashed up to some byte. No descriptor is held between two turns."""

    def __init__(self, path: Path, size: int) -> None:
        self.path, self.size, self.place = path, size, 0
        self.digest = hashlib.sha256()


def _sha256(begun: _Begun, limit: Callable[[Path], float]) -> str | None:
    """Hash up to the limit, which may move meanwhile; the digest where the file has ended."""
    block = memoryview(bytearray(_BLOCK))
    with begun.path.open("rb", buffering=0) as file:
        file.seek(begun.place)
        while (room := limit(begun.path) - begun.place) > 0:
            count = file.readinto(block[: int(min(room, _BLOCK))])
            if not count:
                return begun.digest.hexdigest()
            begun.digest.update(block[:count])
            begun.place += count
    return None


class HashCache:
    """Hashes of files that have not changed since; kept in the user's cache folder."""

    def __init__(self) -> None:
        self._path = cache_folder() / "sha256.json"
        self._fresh: dict[str, str] = {}

    @cached_property
    def _known(self) -> dict[str, str]:
        return read_cached(self._path)

    def get(self, key: str | None, size: int) -> str | None:
        """The hash of a file in this state, if it is known."""
        if key is None:
            return None
        return _memory.get(key) or (self._known.get(key) if size >= _LARGE else None)

    def put(self, path: Path, digest: str) -> None:
        """Remember a hash; on disk small files are not worth it."""
        facts = path.stat()
        key = _identity(facts)
        if key is None:
            return
        while len(_memory) >= _ENTRIES:
            _memory.pop(next(iter(_memory)), None)
        _memory[key] = digest
        if facts.st_size >= _LARGE:
            self._fresh[key] = digest

    def save(self) -> None:
        """Write what is new; a cache that cannot be written is no error."""
        if not self._fresh:
            return
        kept = dict(list({**self._known, **self._fresh}.items())[-_ENTRIES:])
        keep_cached(self._path, kept)


def _identity(facts: os.stat_result) -> str | None:
    if time.time() - max(facts.st_mtime, facts.st_ctime) < _SETTLED:
        return None
    times = f"{facts.st_mtime_ns}:{facts.st_ctime_ns}"
    return f"{facts.st_dev}:{facts.st_ino}:{facts.st_size}:{times}"
