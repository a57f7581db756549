"""One at a time: a lock file that names who holds it.

The system holds the lock, so that one whose process was killed is free at once, whatever its number
or the clock say. Where a disk has no locks, the file's mark tells: see `files.is_abandoned`.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stockpot.errors import UserError
from stockpot.files import is_abandoned, own_mark

_WITHOUT_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_HELD = {errno.EWOULDBLOCK, errno.EACCES}
_AGAIN = 0.05


class HeldError(UserError):
    """Another process works on the same output."""


@contextmanager
def held_alone(file: Path, what: str | Path, *, wait: float = 0.0) -> Iterator[None]:
    """Hold a lock while a block runs; the file is there as long as it is held, or after a kill.

    Args:
        file: the lock file.
        what: what it stands for, to say so.
        wait: seconds to wait for another process to let go.
    """
    until = time.monotonic() + wait
    missing = [folder for folder in file.parents if not folder.exists()]
    while (handle := _taken(file)) is None:
        if time.monotonic() >= until:
            raise HeldError(
                f"{what} is being written by another process{_holder(file)}.",
                hint="Wait until it is done, stop it, or choose another output.",
            )
        time.sleep(_AGAIN)
    try:
        yield
    finally:
        # Removed while it is held: who takes the name next makes a file of its own.
        file.unlink(missing_ok=True)
        os.close(handle)
        with suppress(OSError):  # nothing may be left of what failed, not even empty folders
            for folder in missing:
                folder.rmdir()


def lock_of(out: Path) -> Path:
    """Where the lock of a folder lies that appears whole: beside it."""
    return out.with_name(f".{out.name}.lock")


def remove_abandoned_lock(file: Path) -> None:
    """Remove a lock file that a killed process left."""
    if file.exists():
        with suppress(HeldError), held_alone(file, file):
            pass


def _taken(file: Path) -> int | None:
    """An open file that holds the lock; none while another does."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as problem:
        raise UserError(f"cannot write {file.parent}: {problem.strerror or problem}.") from problem
    try:
        if _lock(handle, file) and _is_at(handle, file):
            _sign(handle)
            return handle
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None


def _lock(handle: int, file: Path) -> bool:
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # not on Windows
        return _is_free(file)
    except OSError as problem:
        if problem.errno in _HELD:
            return False
        if problem.errno in _WITHOUT_LOCKS:
            return _is_free(file)
        raise
    return True


def _is_free(file: Path) -> bool:
    mark = str(_owner(file).get("mark", ""))
    return not mark or is_abandoned(mark)


def _is_at(handle: int, file: Path) -> bool:
    """Whether the file that was locked is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(file))
    except FileNotFoundError:
        return False


def _sign(handle: int) -> None:
    owner = {
        "mark": own_mark(),
        "host": platform.node(),
        "process": os.getpid(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])[:500],
    }
    # A full disk takes nothing from the lock but its words.
    with suppress(OSError):
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(owner).encode(), 0)


def _owner(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _holder(file: Path) -> str:
    owner = _owner(file)
    if not owner:
        return ""
    return (
        f" ({owner.get('process')} on {owner.get('host')}, since {owner.get('since')}: "
        f"{owner.get('command')})"
    )
