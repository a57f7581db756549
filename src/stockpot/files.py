"""Writing files whole or not at all, and telling what a killed process left behind."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import tempfile
from functools import lru_cache
from pathlib import Path

from stockpot.errors import UserError
from stockpot.remote.address import refuse_address


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a whole file or nothing: a temporary file beside it, then a rename."""
    refuse_address(path)
    data = content.encode() if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(path.parent.absolute(), os.getpid())
        prefix = f".{path.name[:100]}.{_host()}-{os.getpid()}-"
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


def cache_folder() -> Path:
    """What may be lost lies here: `$STOCKPOT_CACHE`, else `stockpot` in the user's cache folder."""
    if chosen := os.environ.get("STOCKPOT_CACHE", "").strip():
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "stockpot"


def open_files_allowed() -> int:
    """How many files this process may have open at a time."""
    try:
        import resource
    except ImportError:  # not on Windows
        return 512
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft


def is_running(process: int) -> bool:
    """Whether a process of that number exists; leftovers of one that does not may be removed."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@lru_cache(maxsize=1024)
def _remove_abandoned(folder: Path, process: int) -> None:
    """Remove what killed processes of this machine had begun to write; once for each folder."""
    ours = re.compile(rf"\..*\.{_host()}-(\d+)-[^-]*\.tmp")
    for entry in os.scandir(folder):
        found = ours.fullmatch(entry.name)
        if found and not is_running(int(found[1])):
            Path(entry.path).unlink(missing_ok=True)


@lru_cache
def _host() -> str:
    """This machine in a few letters: the number of a process means nothing on another."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:6]
