"""Opening an index, and telling it of results as they come; sqlalchemy is imported for that."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from stockpot.errors import MissingDependencyError, UserError
from stockpot.stages import stage

if TYPE_CHECKING:
    from stockpot.results.index.index import Index

DEFAULT = "runs/index.db"


def open_index(place: str | Path = DEFAULT, *, write: bool = False) -> Index:
    """An index of results: a SQLite file by its path, a database by `postgresql://...`.

    Args:
        place: where it is.
        write: make it where there is none, and allow changes.
    """
    with _installed():
        from stockpot.results.index.index import Index
    return Index(place, write=write)


def rebuild_index(place: str | Path = DEFAULT, folders: Sequence[str | Path] = ()) -> Index:
    """An index made again from the files, whatever was in it; `folders` as for `rebuilt`."""
    with _installed():
        from stockpot.results.index.index import rebuilt
    return rebuilt(place, folders)


@contextmanager
def _installed() -> Iterator[None]:
    try:
        with stage("start"):
            yield
    except ImportError as problem:
        raise MissingDependencyError(
            "an index of results needs the package sqlalchemy.",
            hint="pip install 'stockpot[index]'",
        ) from problem


def prepared(place: str | Path, folder: str | Path) -> str:
    """The index that results of this folder are told to, as any process finds it.

    It is made where there is none, so that one that cannot be reached is found out before
    anything is measured; what the folder holds already is in it then.
    """
    with open_index(place, write=True) as index:
        if os.path.isdir(folder):
            index.update(folder)
        return index.place.text


def tell(place: str, file: Path) -> None:
    """Put one result file into an index; a failure is a warning, because the file is safe."""
    try:
        with open_index(place, write=True) as index:
            index.add(file)
    except UserError as problem:
        warnings.warn(f"{problem} The result is saved: {file}.", stacklevel=2)


def caught_up(place: str, folder: str | Path) -> None:
    """At the end of a run: what belongs to the folder is in the index, and nothing else of it."""
    try:
        with open_index(place, write=True) as index:
            index.update(folder)
    except UserError as problem:
        warnings.warn(
            f"{problem} Results are saved; `stockpot results index {folder}` with the same --index "
            "brings it up to date.",
            stacklevel=2,
        )
