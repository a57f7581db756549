"""Writing files whole or not at all, and telling what a killed process left behind."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from stockpot.errors import UserError


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a whole file or nothing: a temporary file beside it, then a rename."""
    data = content.encode() if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
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


def is_running(process: int) -> bool:
    """Whether a process of that number exists; leftovers of one that does not may be removed."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
