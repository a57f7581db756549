"""One look at every file of a set: its sha256, and whether it is whole.

What was seen is remembered in the user's cache folder, a file for each folder of pictures. A
picture is the one that was seen while its inode, size and times of change are the same; one that
changed in the last moments is not remembered, since a second change might fall into the same tick.
`STOCKPOT_CHECK_FILES=1` (`--check-files`) reads everything again.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from torch import Tensor

from stockpot.datasets.pictures import BROKEN, Encoded, check_whole
from stockpot.engine.cores import usable_cores
from stockpot.errors import BadDataError
from stockpot.files import cache_folder

OnBroken = Literal["stop", "skip"]
CHECK_FILES = "STOCKPOT_CHECK_FILES"

_CHUNK = 64
_SETTLED = 2.0
_FOLDERS = 64
"""Folders that are remembered; the one that was looked at longest ago is forgotten."""


@contextmanager
def reading_again(wanted: bool) -> Iterator[None]:
    """Trust nothing that was seen before, in this process and those that it starts."""
    before = os.environ.get(CHECK_FILES)
    if wanted:
        os.environ[CHECK_FILES] = "1"
    try:
        yield
    finally:
        if wanted and before is None:
            del os.environ[CHECK_FILES]


class Inspection(NamedTuple):
    """What one reading of every file has shown."""

    digests: list[str]
    broken: dict[int, str]


def inspect(items: Sequence[Encoded], root: Path | None = None) -> Inspection:
    """Look at every file, in parallel; what was seen before is not read again.

    Args:
        items: files, pieces of files, or their bytes.
        root: the folder under whose name files are remembered; without it they are not.
    """
    memory = _Memory(root)
    chunks = [items[start : start + _CHUNK] for start in range(0, len(items), _CHUNK)]
    with ThreadPoolExecutor(usable_cores(), thread_name_prefix="inspect") as threads:
        found = [one for part in threads.map(memory.look, chunks) for one in part]
    memory.save()
    broken = {row: reason for row, (_, reason) in enumerate(found) if reason}
    return Inspection([digest for digest, _ in found], broken)


class _Memory:
    """File name -> state and sha256, of one folder."""

    def __init__(self, root: Path | None) -> None:
        self._path: Path | None = None
        self._known: dict[str, list[str]] = {}
        self._seen: dict[str, list[str]] = {}
        if root is not None:
            name = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:32]
            self._path = cache_folder() / "pictures" / f"{name}.json"
            if not os.environ.get(CHECK_FILES):
                self._known = _read(self._path)

    def look(self, items: Sequence[Encoded]) -> list[tuple[str, str]]:
        """For each file its sha256, or what is wrong with it."""
        return [self._look(item) for item in items]

    def _look(self, item: Encoded) -> tuple[str, str]:
        if isinstance(item, bytes):
            return _whole(item)
        if self._path is None:
            state = None
        else:
            try:
                state = _state(item.stat())
            except OSError as problem:
                return "", problem.strerror or "cannot be read"
            known = self._known.get(str(item))
            if state and known and known[0] == state:
                self._seen[str(item)] = known
                return known[1], ""
        try:
            data = item.read_bytes()
        except OSError as problem:
            return "", problem.strerror or "cannot be read"
        digest, reason = _whole(data)
        if digest and state:
            self._seen[str(item)] = [state, digest]
        return digest, reason

    def save(self) -> None:
        """Write what is new; a folder that cannot be written is no error."""
        if self._path is None or self._seen.items() <= self._known.items():
            return
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Another part of the same folder may have been seen before.
            temporary.write_text(json.dumps({**self._known, **self._seen}), encoding="utf-8")
            os.replace(temporary, self._path)
            others = sorted(self._path.parent.glob("*.json"), key=lambda path: path.stat().st_mtime)
            for old in others[:-_FOLDERS]:
                old.unlink(missing_ok=True)
        except OSError:
            return


def _read(path: Path) -> dict[str, list[str]]:
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _state(facts: os.stat_result) -> str | None:
    if time.time() - max(facts.st_mtime, facts.st_ctime) < _SETTLED:
        return None
    return f"{facts.st_ino}:{facts.st_size}:{facts.st_mtime_ns}:{facts.st_ctime_ns}"


def _whole(data: bytes) -> tuple[str, str]:
    try:
        check_whole(data)
    except BROKEN as problem:
        return "", str(problem).split(" <_io")[0].split(" file <")[0] or "cannot be decoded"
    return hashlib.sha256(data).hexdigest(), ""


def usable_rows(
    names: Sequence[str], broken: dict[int, str], on_broken: OnBroken, what: str
) -> list[int]:
    """The rows that can be decoded; broken ones are named, and stop or are skipped."""
    if broken:
        listing = "; ".join(f"{names[row]} ({reason})" for row, reason in broken.items())
        message = f"{what}: {len(broken)} of {len(names)} images are broken: {listing}"
        if on_broken == "stop":
            raise BadDataError(f"{message}.", hint="Repair them, or set on_broken=skip.")
        warnings.warn(f"{message}; they are skipped.", UserWarning, stacklevel=2)
    return [row for row in range(len(names)) if row not in broken]


def content_fingerprint(
    names: Sequence[str], digests: Sequence[str], labels: Tensor, classes: Sequence[str]
) -> str:
    """The sha256 over relative names, contents and labels."""
    digest = hashlib.sha256(repr(tuple(classes)).encode())
    for name, content, label in zip(names, digests, labels.tolist(), strict=True):
        digest.update(f"{name}\0{content}\0{label}\n".encode())
    return digest.hexdigest()
