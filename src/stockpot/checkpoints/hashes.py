"""The sha256 of a file, read once for every state of it, and while other work goes on.

Hashing nine ViT-B checkpoints takes two seconds of one core, as long as importing torch and
fusing them. It releases the interpreter lock, so `FileHashes` is begun first and waited for last.

A hash is remembered in this process, and of large files on disk, so that a pool fused again is not
hashed again. A file is known by its device, inode, size and times of change: a new content under an
old name has another time. A file changed in the last moments is not remembered: a second change
might fall into the same tick of the clock.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from stockpot.engine.cores import usable_cores
from stockpot.files import cache_folder, keep_cached, read_cached

_BLOCK = 1 << 20
_THREADS = 2
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LARGE = 16_000_000
_SETTLED = 2.0
_ENTRIES = 4096
_memory: dict[str, str] = {}


class FileHashes:
    """Hashes of files, computed by background threads that die with the process."""

    def __init__(self, files: Iterable[Path], threads: int = _THREADS) -> None:
        self._cache = HashCache()
        self._results: dict[Path, str] = {}
        self._waiting: list[Path] = []
        for path in list(dict.fromkeys(files))[::-1]:
            facts = path.stat()
            known = _named_by_hash(path) or self._cache.get(_identity(facts), facts.st_size)
            if known:
                self._results[path] = known
            else:
                self._waiting.append(path)
        self._stop = threading.Event()
        self._failed: OSError | None = None
        self._threads = [
            threading.Thread(target=self._work, name="sha256", daemon=True)
            for _ in range(min(threads, len(self._waiting)))
        ]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                path = self._waiting.pop()
            except IndexError:
                return
            try:
                digest = _sha256(path, self._stop)
            except OSError as problem:
                self._failed = problem
                return
            if not self._stop.is_set():
                self._results[path] = digest
                self._cache.put(path, digest)

    def stop(self) -> None:
        """Give up; used when the run that wanted the hashes has failed."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def result(self) -> dict[Path, str]:
        """Wait for, and return, the hash of every file."""
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


def _sha256(path: Path, stop: threading.Event) -> str:
    digest = hashlib.sha256()
    block = memoryview(bytearray(_BLOCK))
    with path.open("rb", buffering=0) as file:
        while not stop.is_set() and (count := file.readinto(block)):
            digest.update(block[:count])
    return digest.hexdigest()


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
