"""One look at every file of a set: its sha256, and whether it is whole.

What was seen is remembered in the user's cache folder, a file for each folder of pictures. A
picture is the one that was seen while its inode, size and times of change are the same; one that
changed in the last moments is not remembered, since a second change might fall into the same tick.
`STOCKPOT_CHECK_FILES=1` (`--check-files`) reads everything again.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from stockpot.datasets.pictures import BROKEN, SUFFIXES, Encoded, Piece, check_whole
from stockpot.datasets.stream import processes
from stockpot.engine.cores import usable_cores
from stockpot.errors import BadDataError, listed
from stockpot.files import cache_folder, keep_cached, read_cached
from stockpot.foreign import reason

if TYPE_CHECKING:
    from torch import Tensor

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
    if _looking is not None:
        _looking.join()
    memory = _Memory(root)
    chunks = [items[start : start + _CHUNK] for start in range(0, len(items), _CHUNK)]
    with ThreadPoolExecutor(usable_cores(), thread_name_prefix="inspect") as threads:
        found = [one for part in threads.map(memory.look, chunks) for one in part]
    memory.save()
    broken = {row: why for row, (_, why) in enumerate(found) if why}
    return Inspection([digest for digest, _ in found], broken)


_ahead: dict[str, list[str]] = {}
_looking: threading.Thread | None = None


def look_ahead(root: Path) -> None:
    """Have all pictures below a folder read by other processes, where they run, for who will look
    at them in a while; nobody waits for it.
    """
    global _looking
    decoders = processes.running()
    if decoders is not None and _looking is None and not os.environ.get(CHECK_FILES):
        _looking = threading.Thread(target=_look_ahead, args=(root, decoders), daemon=True)
        _looking.start()


def _look_ahead(root: Path, decoders: processes.Decoders) -> None:
    found = [
        Path(folder) / name
        for folder, _, names in os.walk(root)
        for name in names
        if Path(name).suffix.lower() in SUFFIXES
    ]
    known = _Memory(root)
    files = [file for file in found if str(file) not in known._known]
    chunks = [files[start : start + _CHUNK] for start in range(0, len(files), _CHUNK)]

    def look(chunk: list[Path]) -> None:
        for file, (state, digest, _) in zip(chunk, decoders.look(chunk) or [], strict=False):
            if state and digest:
                _ahead[str(file)] = [state, digest]

    with ThreadPoolExecutor(usable_cores(), thread_name_prefix="look ahead") as threads:
        list(threads.map(look, chunks))


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
                self._known = read_cached(self._path)

    def look(self, items: Sequence[Encoded]) -> list[tuple[str, str]]:
        """For each file its sha256, or what is wrong with it."""
        found = {row: self._remembered(item) for row, item in enumerate(items)}
        unknown = [row for row, seen in found.items() if seen is None]
        decoders = processes.running()
        files = [item for row in unknown if isinstance(item := items[row], Path)]
        seen = decoders.look(files) if decoders and len(files) == len(unknown) > 0 else None
        for place, row in enumerate(unknown):
            item = items[row]
            if isinstance(item, bytes):
                found[row] = _whole(item)
                continue
            state, digest, reason = seen[place] if seen else look_at(item)
            if digest and state and self._path is not None:
                self._seen[str(item)] = [state, digest]
            found[row] = (digest, reason)
        return [told for row in range(len(items)) if (told := found[row]) is not None]

    def _remembered(self, item: Encoded) -> tuple[str, str] | None:
        if isinstance(item, bytes) or self._path is None:
            return None
        name = str(item)
        known = _ahead.get(name) or self._known.get(name)
        if known is None:
            return None
        try:
            state = _state(item.stat())
        except OSError:
            return None
        if state is None or known[0] != state:
            return None
        self._seen[name] = known
        return known[1], ""

    def save(self) -> None:
        """Write what is new; a folder that cannot be written is no error."""
        if self._path is None or self._seen.items() <= self._known.items():
            return
        # Another part of the same folder may have been seen before.
        keep_cached(self._path, {**self._known, **self._seen})
        try:
            others = sorted(self._path.parent.glob("*.json"), key=lambda path: path.stat().st_mtime)
            for old in others[:-_FOLDERS]:
                old.unlink(missing_ok=True)
        except OSError:
            return


def _state(facts: os.stat_result) -> str | None:
    if time.time() - max(facts.st_mtime, facts.st_ctime) < _SETTLED:
        return None
    return f"{facts.st_ino}:{facts.st_size}:{facts.st_mtime_ns}:{facts.st_ctime_ns}"


def look_at(file: Path | Piece) -> tuple[str | None, str, str]:
    """The state of a file, its sha256, and what is wrong with it; read now."""
    try:
        state = _state(file.stat())
        data = file.read_bytes()
    except OSError as problem:
        return None, "", problem.strerror or "cannot be read"
    return state, *_whole(data)


def _whole(data: bytes) -> tuple[str, str]:
    try:
        check_whole(data)
    except BROKEN as problem:
        return "", reason(problem).split(" <_io")[0].split(" file <")[0] or "cannot be decoded"
    return hashlib.sha256(data).hexdigest(), ""


def usable_rows(
    names: Sequence[str], broken: dict[int, str], on_broken: OnBroken, what: str
) -> list[int]:
    """The rows that can be decoded; broken ones are named, and stop or are skipped."""
    if broken:
        listing = listed((f"{names[row]} ({why})" for row, why in broken.items()), 200)
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
