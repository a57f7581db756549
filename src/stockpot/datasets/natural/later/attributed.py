"""Sets whose class folders lie below folders that say more: `texture/chair/picture.jpg`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.natural.layout import NaturalSet, picture_names
from stockpot.datasets.natural.public import folder_dataset
from stockpot.datasets.stream.file_check import OnBroken
from stockpot.errors import BadDataError


def load_attributed(
    known: NaturalSet,
    path: str,
    says: Callable[[PurePosixPath], Mapping[str, str] | None],
    on_broken: OnBroken,
    *,
    shape: str,
    split: str = "test",
) -> Dataset:
    """A set whose pictures' folders say more than their class, in columns.

    Args:
        known: the set; its class folder is the one that a picture lies in.
        path: its folder, or a folder of several sets.
        says: the columns of a picture by its name, or none where it is no part of what is asked.
        on_broken: what to do with files that cannot be decoded.
        shape: the layout in words, for who has another.
        split: what the dataset calls itself.
    """
    root = Path(path).expanduser()
    inside = (root / name for name in known.layout.folders)
    folder = next((place for place in inside if place.is_dir()), root)
    if not folder.is_dir():
        raise BadDataError(f"{known.name}: there is no folder {root}.")
    files: dict[str, int] = {}
    columns: dict[str, Mapping[str, str]] = {}
    for name in picture_names(folder):
        place = PurePosixPath(name)
        number = known.number(place.parent.name)
        told = says(place) if number is not None else None
        if number is not None and told is not None:
            files[name], columns[name] = number, told
    if not files:
        raise BadDataError(f"{known.name}: expected {shape} in {folder}, found none.")
    data = folder_dataset(known, folder, files, split, on_broken)
    kept = [columns[name] for name in data.columns["file"]]
    further = {key: tuple(each[key] for each in kept) for key in kept[0]}
    return replace(data, columns={**data.columns, **further})
