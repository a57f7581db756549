"""The cache directory, and files that appear there only when they are complete and correct."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stockpot.errors import UserError
from stockpot.files import cache_folder, is_abandoned, own_mark


def cache_dir() -> Path:
    """Where fetched data lies: `$STOCKPOT_CACHE`, else `stockpot` in the user's cache folder."""
    return cache_folder()


def sha256_of(path: Path) -> str:
    """The sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def scratch_folder(beside: Path) -> Iterator[Path]:
    """An empty folder on the same disk as `beside`, removed at the end whatever happens."""
    try:
        beside.mkdir(parents=True, exist_ok=True)
        _sweep(beside)
        folder = Path(tempfile.mkdtemp(prefix=f".partial-{own_mark()}-", dir=beside))
    except OSError as problem:
        raise UserError(
            f"expected a writable cache directory, got {beside} ({problem.strerror}).",
            hint="Set STOCKPOT_CACHE to a folder you can write to.",
        ) from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def written_whole(target: Path) -> Iterator[Path]:
    """A path to write to that becomes `target` when the block ends without an error."""
    with scratch_folder(target.parent) as folder:
        part = folder / target.name
        try:
            yield part
            os.replace(part, target)
        except OSError as problem:
            raise UserError(
                f"{target} could not be written ({problem.strerror or problem}).",
                hint="Free some space or set STOCKPOT_CACHE to another disk.",
            ) from problem


def _sweep(folder: Path) -> None:
    """Remove what killed processes left behind."""
    for left in folder.glob(".partial-*-*"):
        if is_abandoned(left.name.removeprefix(".partial-")):
            shutil.rmtree(left, ignore_errors=True)
