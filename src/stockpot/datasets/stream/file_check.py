"""One look at every file of a set: its sha256, and whether it is whole.

What was seen is remembered in the user's cache folder, a file for each folder of pictures. A
picture is the one that was seen while its inode, size and times of change are the same; one that
changed in the last moments is not remembered, since a second change might fall into the same tick.
`STOCKPOT_CHECK_FILES=1` (`--check-files`) reads everything again.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from stockpot.datasets.picture_folder import FilesBelow
from stockpot.datasets.pictures import BROKEN, Encoded, Piece, check_whole
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
    looked = _taken(root)
    memory = looked or Memory(root)
    found: list[tuple[str, str] | None] = [None] * len(items)
    if looked:
        found = looked.all_seen(items)
    left = [row for row, one in enumerate(found) if one is None]
    chunks = [[items[row] for row in left[at : at + _CHUNK]] for at in range(0, len(left), _CHUNK)]
    if chunks:
        with ThreadPoolExecutor(usable_cores(), thread_name_prefix="inspect") as threads:
            told = [one for part in threads.map(memory.look, chunks) for one in part]
        for row, one in zip(left, told, strict=True):
            found[row] = one
    memory.save(beside=looked is not None)
    whole = [one for one in found if one is not None]
    broken = {row: why for row, (_, why) in enumerate(whole) if why}
    return Inspection([digest for digest, _ in whole], broken)


_ahead: dict[str, list[str]] = {}
_looking: threading.Thread | None = None
_looked: tuple[Path, Memory] | None = None


def looking() -> bool:
    """Whether somebody looks at files ahead, or did."""
    return _looking is not None


def begin_looking(thread: threading.Thread) -> None:
    """Start who looks at files ahead: whoever inspects files waits for it."""
    global _looking
    _looking = thread
    thread.start()


def give(root: Path, memory: Memory) -> None:
    """Leave what was seen of a folder to who will inspect it."""
    global _looked
    _ahead.update(memory.fresh)
    _looked = root, memory


def _taken(root: Path | None) -> Memory | None:
    """What this process has just seen of a folder.

    Whoever inspects it first believes it without a second look at each file: the files are those
    that the command found when it began. Later, they are asked again whether they have changed.
    """
    global _looked
    if _looking is not None:
        _looking.join()
    if _looked is None or _looked[0] != root or os.environ.get(CHECK_FILES):
        return None
    memory, _looked = _looked[1], None
    return memory


_saving: list[threading.Thread] = []


def wait_saved() -> None:
    """Until all that was seen is written."""
    while _saving:
        _saving.pop().join()


atexit.register(wait_saved)


class Memory:
    """File name -> state and sha256, of one folder."""

    def __init__(self, root: Path | None) -> None:
        self._path: Path | None = None
        self._known: dict[str, list[str]] = {}
        self.fresh: dict[str, list[str]] = {}
        """What was seen by this process."""
        if root is not None:
            name = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:32]
            self._path = cache_folder() / "pictures" / f"{name}.json"
            if not os.environ.get(CHECK_FILES):
                wait_saved()
                self._known = read_cached(self._path)

    def state(self, name: str) -> str | None:
        """In which state a file was when it was seen last."""
        known = self._known.get(name)
        return known[0] if known else None

    def take(self, name: str, state: str | None, digest: str) -> None:
        """A file was seen in a state; without a digest, it is as it was when it was seen last."""
        known = self._known.get(name)
        if state and digest:
            self.fresh[name] = [state, digest]
        elif state and known and known[0] == state:
            self.fresh[name] = known

    def seen(self, name: str) -> str | None:
        """The sha256 of a file that this process has seen whole."""
        found = self.fresh.get(name)
        return found[1] if found else None

    def all_seen(self, items: Sequence[Encoded]) -> list[tuple[str, str] | None]:
        """The same of many, with nothing that is wrong; none for those that it has not seen."""
        names = items.texts() if isinstance(items, FilesBelow) else map(str, items)
        digests = map(self.seen, names)
        return [(digest, "") if digest else None for digest in digests]

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
                self.fresh[str(item)] = [state, digest]
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
        self.fresh[name] = known
        return known[1], ""

    def save(self, *, beside: bool) -> None:
        """Write what is new; a folder that cannot be written is no error.

        Args:
            beside: whether a thread does it, for which the process waits before it ends: who was in
                such a hurry that files were looked at ahead does not wait for a disk either.
        """
        if self._path is None or self.fresh.items() <= self._known.items():
            return
        # Another part of the same folder may have been seen before.
        entries = {**self._known, **self.fresh}
        if not beside:
            _write(self._path, entries)
            return
        thread = threading.Thread(target=_write, args=(self._path, entries), name="pictures seen")
        _saving.append(thread)
        thread.start()


def _write(path: Path, entries: dict[str, list[str]]) -> None:
    keep_cached(path, entries)
    with suppress(OSError):
        others = sorted(path.parent.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for old in others[:-_FOLDERS]:
            old.unlink(missing_ok=True)


def _state(facts: os.stat_result) -> str | None:
    if time.time() - max(facts.st_mtime, facts.st_ctime) < _SETTLED:
        return None
    return f"{facts.st_ino}:{facts.st_size}:{facts.st_mtime_ns}:{facts.st_ctime_ns}"


def look_at(file: Path | Piece, known: str | None = None) -> tuple[str | None, str, str]:
    """The state of a file, its sha256, and what is wrong with it; read now.

    Args:
        file: what to look at.
        known: a state in which it was seen whole; a file that is in it still is not read, and has
            no sha256 here.
    """
    try:
        state = _state(file.stat())
        if known is not None and known == state:
            return state, "", ""
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
    rows = zip(names, digests, labels.tolist(), strict=True)
    digest.update(
        "".join(f"{name}\0{content}\0{label}\n" for name, content, label in rows).encode()
    )
    return digest.hexdigest()
