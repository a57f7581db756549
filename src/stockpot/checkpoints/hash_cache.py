"""Remember the sha256 of large files, so that a pool fused again is not hashed again.

A file is known by its device, inode, size and times of change: a new content under an old name has
another time. A file changed in the last moments is not remembered, since a second change might
fall into the same tick of the clock.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

_LARGE = 16_000_000
_SETTLED = 2.0
_ENTRIES = 4096


class HashCache:
    """Hashes of files that have not changed since; kept in the user's cache folder."""

    def __init__(self) -> None:
        folder = os.environ.get("STOCKPOT_CACHE") or "~/.cache/stockpot"
        self._path = Path(folder).expanduser() / "sha256.json"
        self._fresh: dict[str, str] = {}
        try:
            known = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            known = {}
        self._known: dict[str, str] = known if isinstance(known, dict) else {}

    def get(self, path: Path) -> str | None:
        """The hash of a file, if it is known and the file has not changed."""
        key = _identity(path)
        return None if key is None else self._known.get(key)

    def put(self, path: Path, digest: str) -> None:
        """Remember a hash; small files are not worth it."""
        key = _identity(path)
        if key is not None:
            self._fresh[key] = digest

    def save(self) -> None:
        """Write what is new; a cache that cannot be written is no error."""
        if not self._fresh:
            return
        kept = dict(list({**self._known, **self._fresh}.items())[-_ENTRIES:])
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(kept), encoding="utf-8")
            os.replace(temporary, self._path)
        except OSError:
            temporary.unlink(missing_ok=True)


def _identity(path: Path) -> str | None:
    stat = path.stat()
    if stat.st_size < _LARGE or time.time() - max(stat.st_mtime, stat.st_ctime) < _SETTLED:
        return None
    return f"{stat.st_dev}:{stat.st_ino}:{stat.st_size}:{stat.st_mtime_ns}:{stat.st_ctime_ns}"
