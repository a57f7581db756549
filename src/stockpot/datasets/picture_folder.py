"""How pictures lie in a folder: its kind, its splits, and the names of its files; without torch.

So that a command can look at them while torch is still being imported. What it lists then
(`list_ahead`) is what the first who asks is told: to walk through ten thousand names twice would
take longer than to look at them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, overload

from stockpot.datasets.by_content.split_names import SPLIT_NAMES, check_part, named_split
from stockpot.datasets.pictures import SUFFIXES
from stockpot.errors import BadDataError, UnknownNameError, shortened

_WRITTEN_BY_DATASETS = ("state.json", "dataset_dict.json")
"""What Hugging Face `datasets` writes beside its files."""


@dataclass(frozen=True)
class FilesBelow(Sequence[Path]):
    """Files by their names from a folder on.

    The `Path` of one is made when somebody asks for it: for ten thousand files that takes longer
    than all else that is done with their names.
    """

    root: str
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, row: int) -> Path: ...
    @overload
    def __getitem__(self, row: slice) -> FilesBelow: ...
    def __getitem__(self, row: int | slice) -> Path | FilesBelow:
        if isinstance(row, slice):
            return FilesBelow(self.root, self.names[row])
        return Path(self.root, self.names[row])

    def texts(self) -> list[str]:
        """Each as `str` writes its path."""
        start = "" if self.root == "." else os.path.join(self.root, "")
        return [start + name for name in self.names]


class _Listing(NamedTuple):
    kind: str
    pictures: list[str]


_listings: dict[str, _Listing | None] = {}
"""By folder; none once somebody was told: whoever asks later means the folder as it is then."""


def list_ahead(root: Path) -> list[str]:
    """List the pictures of a folder, for who asks in a while; none where it is of another kind."""
    kind = _kind(root)
    pictures = _pictures(root) if kind == "imagefolder" else []
    _listings.setdefault(str(root), _Listing(kind, pictures))
    return pictures


def folder_kind(root: Path) -> str:
    """The dataset kind that reads a folder: `webdataset`, `hub` or `imagefolder`."""
    listed = _listings.get(str(root))
    return listed.kind if listed else _kind(root)


def picture_names(root: Path) -> list[str]:
    """The pictures below a folder, by their names from there, in no order; hidden ones left out."""
    listed = _listings.get(str(root))
    _listings[str(root)] = None
    # Of another kind, nobody has looked for pictures.
    found = listed.pictures if listed and listed.kind == "imagefolder" else _pictures(root)
    if not found:
        raise BadDataError(
            f"{root} holds no images.", hint=f"Looked for {' '.join(sorted(SUFFIXES))}."
        )
    for name in found:
        if not name.isascii() and name.encode("utf-8", "replace").decode() != name:
            raise BadDataError(
                f"{root}: expected file names in UTF-8, got {shortened(ascii(name), 100)}.",
                hint="Rename it: no result could name it.",
            )
    return found


def split_folder(path: Path, split: str | None) -> tuple[Path, str | None]:
    """The folder that holds a split, and its name; the whole one and none where it is not parted.

    No split means the test split.
    """
    if not path.is_dir():
        raise BadDataError(f"expected a folder of images, and {path} is none.")
    wanted = split or "test"
    for name in SPLIT_NAMES.get(wanted, (wanted,)):
        if _is_split(path / name):
            return path / name, wanted
    others = [name for names in SPLIT_NAMES.values() for name in names if _is_split(path / name)]
    if others:
        raise UnknownNameError(f"split of {path}", wanted, others)
    check_part(str(path), named_split(path), split)
    return path, None


def _is_split(folder: Path) -> bool:
    """Whether a folder is there and holds a split: `train` among other classes is a class."""
    if not folder.is_dir():
        return False
    known = {name for names in SPLIT_NAMES.values() for name in names}
    beside = [name for name in folder_names(folder.parent) if name not in known]
    return folder.name not in known or not beside or bool(folder_names(folder))


def folder_names(path: Path) -> list[str]:
    """The folders in a folder, in no order; hidden ones left out."""
    with os.scandir(path) as entries:
        return [entry.name for entry in entries if entry.name[0] != "." and entry.is_dir()]


def _kind(root: Path) -> str:
    # By names alone, and one look at each folder: patterns would be held against every picture.
    with suppress(OSError), os.scandir(root) as entries:
        there = {entry.name: entry.is_dir() for entry in entries}
        if any(name.endswith(".tar") for name in there):
            return "webdataset"
        if any(name in _WRITTEN_BY_DATASETS or name.endswith(".parquet") for name in there):
            return "hub"
        if any(_holds_parquet(root / name) for name, is_folder in there.items() if is_folder):
            return "hub"
    return "imagefolder"


def _holds_parquet(folder: Path) -> bool:
    try:
        return any(name.endswith(".parquet") for name in os.listdir(folder))
    except OSError:
        return False  # nobody may look into it: who reads the pictures will say so


def _pictures(root: Path) -> list[str]:
    return [name for name in _files(root, "") if os.path.splitext(name)[1].lower() in SUFFIXES]


def _files(folder: Path | str, prefix: str, links: tuple[str, ...] = ()) -> Iterator[str]:
    """Names of all files below, from the first folder on, without hidden ones.

    The system tells with the names which are files: asking for each would take as long as reading.
    Links to folders are followed, once each; `links` are those that led here.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path, f"{prefix}{entry.name}/", links)
            elif entry.is_file():
                yield f"{prefix}{entry.name}"
            elif entry.is_dir():
                target, here = os.path.realpath(entry.path), os.path.realpath(folder)
                if target not in (*links, os.path.commonpath([target, here])):  # else in circles
                    yield from _files(entry.path, f"{prefix}{entry.name}/", (*links, target))
