"""What splits are called, in names of folders and files and by who asks for one; without torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stockpot.errors import BadDataError, UnknownNameError

SPLIT_NAMES: Mapping[str, tuple[str, ...]] = {
    "train": ("train", "training"),
    "val": ("val", "validation", "valid", "dev"),
    "test": ("test", "testing", "t10k"),
}
"""What folders and files are called that hold a split."""

WHOLE = "all"
"""What data without splits is called as a whole."""
SHARES = {"train": 60, "val": 20, "test": 20}
"""Percent of all hashes."""


def named_split(path: Path) -> str | None:
    """The split that a folder or file holds by its name, such as `train` or `test-00000.parquet`.

    A hyphen may follow the name of a split in that of a file.
    """
    stem = path.name.split(".")[0]
    return split_called(stem.partition("-")[0] if path.is_file() else stem)


def split_called(word: str) -> str | None:
    """The split that goes by a name."""
    return next((split for split, names in SPLIT_NAMES.items() if word in names), None)


def check_part(place: str, own: str | None, split: str | None) -> None:
    """Raise if data that is not parted cannot give a split.

    Args:
        place: what messages call it.
        own: the split that it is as a whole, by its name.
        split: the one that is asked for.
    """
    if own is not None and split not in (None, WHOLE, own):
        raise BadDataError(
            f"{place} is {own} by its name and holds no splits; got split {split!r}.",
            hint=f"Ask for {own}, or give the data of {split}.",
        )
    if split not in (None, WHOLE, *SHARES):
        raise UnknownNameError(f"split of {place}", str(split), [WHOLE, *SHARES])
