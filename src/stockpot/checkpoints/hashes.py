"""The sha256 of weight files, computed while other work goes on.

Hashing nine ViT-B checkpoints takes two seconds of one core, as long as importing torch and
fusing them. It releases the interpreter lock, so it is begun first and waited for last.
"""

from __future__ import annotations

import hashlib
import mmap
import re
import threading
from collections.abc import Iterable
from pathlib import Path

from stockpot.checkpoints.hash_cache import HashCache

_BLOCK = 1 << 24
_THREADS = 2
_SHA256 = re.compile(r"[0-9a-f]{64}")


class FileHashes:
    """Hashes of files, computed by background threads that die with the process."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._cache = HashCache()
        self._results: dict[Path, str] = {}
        self._waiting: list[Path] = []
        for path in list(dict.fromkeys(files))[::-1]:
            known = _named_by_hash(path) or self._cache.get(path)
            if known:
                self._results[path] = known
            else:
                self._waiting.append(path)
        self._stop = threading.Event()
        self._failed: OSError | None = None
        self._threads = [
            threading.Thread(target=self._work, name="sha256", daemon=True) for _ in range(_THREADS)
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


def _named_by_hash(path: Path) -> str | None:
    """The hub's cache names a large file by its sha256."""
    blob = path.resolve().name
    return blob if path.is_symlink() and _SHA256.fullmatch(blob) else None


def _sha256(path: Path, stop: threading.Event) -> str:
    digest = hashlib.sha256()
    if not path.stat().st_size:
        return digest.hexdigest()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        for start in range(0, len(mapped), _BLOCK):
            if stop.is_set():
                break
            with memoryview(mapped)[start : start + _BLOCK] as block:
                digest.update(block)
    return digest.hexdigest()
