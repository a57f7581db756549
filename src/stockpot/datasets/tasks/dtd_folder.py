"""DTD as its authors publish it: `images/banded/banded_0002.jpg`, and lists of files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.imagefolder import imagefolder
from stockpot.datasets.tasks.definition import TaskSplit
from stockpot.datasets.words.conventions import fusionbench_words
from stockpot.errors import BadDataError

_LISTS = {"train": ("train1.txt", "val1.txt"), "test": ("test1.txt",)}
"""The first of the ten published splits, as the copies on the hub have it."""


def is_published(folder: str | Path) -> bool:
    """Whether a folder has the published layout."""
    return (Path(folder).expanduser() / "images").is_dir()


def published_dtd(folder: str | Path, split: TaskSplit) -> Dataset:
    """One split, or all pictures (as `test`) of a copy without lists; classes may be missing."""
    root = Path(folder).expanduser()
    data = imagefolder(path=str(root / "images"), split="all")
    words = fusionbench_words("dtd")
    foreign = sorted(set(data.classes) - set(words.names))
    if foreign:
        raise BadDataError(f"{root}: {foreign[0]} is no class of DTD.")
    if (root / "labels").is_dir():
        wanted = _listed([root / "labels" / name for name in _LISTS[split]])
        rows = [row for row, file in enumerate(data.columns["file"]) if file in wanted]
        if not rows:
            raise BadDataError(f"{root}: none of the pictures is listed for {split}.")
        data = data.take(rows)
    elif split != "test":
        raise BadDataError(
            f"{root}: expected labels/{_LISTS[split][0]} for split {split}, found no lists.",
            hint="Without lists all pictures are the test split.",
        )
    return replace(data, name="dtd", split=split, templates=words.templates)


def _listed(files: Sequence[Path]) -> set[str]:
    try:
        return {name for file in files for name in file.read_text(encoding="utf-8").split()}
    except OSError as problem:
        raise BadDataError(f"{files[0].parent}: a list is missing ({problem.filename}).") from None
