"""The sha256 of weight files, computed while other work goes on.

Hashing eight ViT-B checkpoints takes two seconds of one core, as long as importing torch and
fusing them. It releases the interpreter lock, so it is begun first and waited for last.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterable
from pathlib import Path

_BLOCK = 1 << 22
_SHA256 = re.compile(r"[0-9a-f]{64}")


class FileHashes:
    """Hashes of files, computed by one background thread that dies with the process."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._files = tuple(dict.fromkeys(files))
        self._results: dict[Path, str] = {}
        self._stop = threading.Event()
        self._failed: OSError | None = None
        self._thread = threading.Thread(target=self._work, name="sha256", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            for path in self._files:
                self._results[path] = _sha256(path, self._stop)
        except OSError as problem:
            self._failed = problem

    def stop(self) -> None:
        """Give up; used when the run that wanted the hashes has failed."""
        self._stop.set()
        self._thread.join()

    def result(self) -> dict[Path, str]:
        """Wait for, and return, the hash of every file."""
        self._thread.join()
        if self._failed:
            raise self._failed
        return dict(self._results)


def _sha256(path: Path, stop: threading.Event) -> str:
    # The hub's cache names a large file by its sha256, which need not be computed again.
    blob = path.resolve().name
    if path.is_symlink() and _SHA256.fullmatch(blob):
        return blob
    digest = hashlib.sha256()
    buffer = bytearray(_BLOCK)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        while not stop.is_set() and (count := file.readinto(buffer)):
            digest.update(view[:count])
    return digest.hexdigest()
