"""How the sets of the ImageNet family are laid out, and where their class folders lie.

A path may be the folder of one set or a folder that holds several under their public names, as
evaluation suites keep them. A set whose folder is called otherwise is given by its own path.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from stockpot.datasets.pictures import SUFFIXES


class Layout(NamedTuple):
    """The names a set goes by on disk."""

    folders: tuple[str, ...]
    """Under a folder of several sets."""
    inner: tuple[str, ...] = ()
    """Inside the set's own folder, where its class folders may lie deeper."""


class NaturalSet(NamedTuple):
    """What is known of a set before its pictures are seen."""

    name: str
    layout: Layout
    classes: tuple[str, ...]
    number: Callable[[str], int | None]
    """From a class folder's name to the class; none where the folder is no part of the set."""
    places: tuple[int, ...] = ()
    """The classes among ImageNet's 1000, for hub data that counts so."""
    licence: str = "unknown"
    hub_split: str = "test"
    selective: bool = False
    """Whether the public data has further classes, which are left aside."""


def located(known: NaturalSet, path: Path) -> Path | None:
    """The folder whose sub-folders are the set's classes, under `path` or `path` itself."""
    under = located_under(known, path)
    if under is not None:
        return under
    return next((place for place in (path, *_deeper(known, path)) if _fits(known, place)), None)


def located_under(known: NaturalSet, root: Path) -> Path | None:
    """The set's class folders under one of its public names in a folder of several sets."""
    for name in known.layout.folders:
        for place in (root / name, *_deeper(known, root / name)):
            if _fits(known, place):
                return place
    return None


def picture_names(folder: Path) -> list[str]:
    """The pictures below a folder, by their names from there."""
    return [
        file.relative_to(folder).as_posix()
        for file in folder.rglob("*")
        if file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and file.is_file()
    ]


def _deeper(known: NaturalSet, folder: Path) -> tuple[Path, ...]:
    return tuple(folder / name for name in known.layout.inner)


def _fits(known: NaturalSet, folder: Path) -> bool:
    return folder.is_dir() and any(
        entry.is_dir() and known.number(entry.name) is not None for entry in folder.iterdir()
    )
