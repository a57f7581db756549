"""Writing files whole or not at all, and telling what a killed process left behind."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import re
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from stockpot.errors import UserError
from stockpot.remote.address import refuse_address


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a whole file or nothing: a temporary file beside it, then a rename."""
    refuse_address(path)
    data = content.encode() if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(path.parent.absolute(), os.getpid())
        prefix = f".{path.name[:100]}.{own_mark()}-"
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=prefix, suffix=".tmp")
    except OSError as problem:
        raise UserError(f"cannot write {path}: {problem.strerror or problem}.") from problem
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except OSError as problem:
        Path(name).unlink(missing_ok=True)
        raise UserError(
            f"cannot write {path}: {problem.strerror or problem}.",
            hint="Nothing was left half-written; free some space or choose another folder.",
        ) from problem
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


_FULL = re.compile(
    r"No space left on device|os error 28\b|Disk quota exceeded|os error 122\b|disk is full"
    r"|PytorchStreamWriter failed writing|\d+ requested and \d+ written"
)


def json_once(path: Path, make: Callable[[], Any]) -> Any:
    """What a JSON file holds; where there is none, it is made and written whole before.

    A long piece of work that is cut into such files goes on where it was killed.
    """
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(make()) + "\n")
    return json.loads(path.read_text(encoding="utf-8"))


def tells_full_disk(problem: BaseException | None) -> bool:
    """Whether an error, or what it arose from, is a full disk; each library says so otherwise."""
    while problem is not None:
        if isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if not isinstance(problem, UserError) and _FULL.search(str(problem)):
            return True
        problem = problem.__cause__ or problem.__context__
    return False


def csv_cell(value: object) -> object:
    """A cell that a spreadsheet shows and does not run: a name may begin like a formula."""
    if isinstance(value, str) and value[:1] in _FORMULA and not _is_number(value):
        value = f"'{value}"
    # A bare return ends a line to many readers, and is not quoted by our writer.
    return value.replace("\r", " ") if isinstance(value, str) else value


def csv_name(text: str) -> str:
    """What `csv_cell` was given."""
    return text[1:] if text[:1] == "'" and text[1:2] in _FORMULA and text[1:] else text


_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


_PIECE = 256
"""Entries of a cache that are turned into text at a time."""


def cache_folder() -> Path:
    """What may be lost lies here: `$STOCKPOT_CACHE`, else `stockpot` in the user's cache folder."""
    if chosen := os.environ.get("STOCKPOT_CACHE", "").strip():
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "stockpot"


def keep_cached(path: Path, entries: Mapping[str, Any]) -> None:
    """Write what may be lost, with a checksum; a folder that cannot be written is no error."""
    text = _in_pieces(entries)
    with suppress(UserError):
        write_atomic(path, f'{{"sha256": "{_sha256(text)}", "entries": {text}}}\n')


def read_cached(path: Path) -> dict[str, Any]:
    """What was kept there; nothing, to be made again, where a bit of it has changed since."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        entries = kept["entries"]
        whole = kept["sha256"] == _sha256(json.dumps(entries))
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return entries if whole and isinstance(entries, dict) else {}


def _in_pieces(entries: Mapping[str, Any]) -> str:
    """The text of `json.dumps`, made so that other threads have their turn meanwhile."""
    every = list(entries.items())
    parts = (json.dumps(dict(every[at : at + _PIECE])) for at in range(0, len(every), _PIECE))
    return "{" + ", ".join(part[1:-1] for part in parts) + "}"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def open_files_allowed() -> int:
    """How many files this process may have open at a time."""
    try:
        import resource
    except ImportError:  # not on Windows
        return 512
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft


def own_mark() -> str:
    """This process as a short text for the names of what it has begun: see `is_abandoned`."""
    return f"{_host()}-{os.getpid()}-{_started(os.getpid())}"


def is_abandoned(mark: str) -> bool:
    """Whether what bears this mark may be removed: its process was of this machine and is gone.

    The number of a process is given again, in a container soon and perhaps to the very process that
    asks; so a mark also has the moment of its start, in the machine's ticks, which no clock moves.
    """
    host, number, started, *_ = [*mark.split("-"), "", ""]
    if host != _host() or not number.isdigit():
        return False
    return not is_running(int(number)) or _started(int(number)) != started


def is_running(process: int) -> bool:
    """Whether this machine has a process of that number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _started(process: int) -> str:
    """When a process began, in ticks since the machine did; 0 where the system does not tell."""
    try:
        facts = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return "0"
    state, *others = facts.rpartition(")")[2].split()
    return "ended" if state in "ZX" else others[18]  # one that nobody has asked for its exit code


@lru_cache(maxsize=1024)
def _remove_abandoned(folder: Path, process: int) -> None:
    """Remove what killed processes of this machine had begun to write; once for each folder."""
    ours = re.compile(rf"\..*\.({_host()}-\d+-\d+)-[^-]*\.tmp")
    for entry in os.scandir(folder):
        found = ours.fullmatch(entry.name)
        if found and is_abandoned(found[1]):
            Path(entry.path).unlink(missing_ok=True)


@lru_cache
def _host() -> str:
    """This machine in a few letters: the number of a process means nothing on another."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:6]
