"""The splits of data that has none: parts by content, so that what is trained on is not tested on.

The hash of a picture's pixels decides: 60 % of all hashes are `train`, 20 % `val` and 20 % `test`.
Near twins go where the smallest hash among them says. So a picture keeps its part when it is
renamed, moved, or joined by other pictures; only a new twin with a smaller hash can move it.
Classes are not balanced: a part holds of each class what the hashes give it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stockpot.datasets.by_content.image_hashes import Hashes, look_at
from stockpot.datasets.by_content.twins import twin_groups
from stockpot.datasets.dataset import Dataset
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


def part_of(data: Dataset, place: str, own: str | None, split: str | None) -> Dataset:
    """A part of data that has no splits; all of it where none is asked for.

    Args:
        data: all of it.
        place: what messages call it.
        own: the split that it is as a whole, by its name; it is not parted then.
        split: train, val, test, or all.
    """
    check_part(place, own, split)
    if own is not None or split is None or split == WHOLE:
        return replace(data, split=own or WHOLE)
    rows = np.flatnonzero(parts(data) == split)
    if not len(rows):
        raise BadDataError(
            f"{place} has no splits of its own, and by content none of its {len(data)} images is "
            f"in {split}.",
            hint=f"Ask for split {WHOLE}, or put the images into folders train, val and test.",
        )
    shares = "/".join(map(str, SHARES.values()))
    return replace(data.take(rows.tolist()), split=f"{split} of {shares} by content")


def parts(data: Dataset) -> NDArray[np.str_]:
    """The part that each picture is in."""
    seen = look_at(data.images)
    return parts_by_hash(seen.hashes, twin_groups(seen.thumbnails))


def parts_by_hash(hashes: Hashes, groups: NDArray[np.int64]) -> NDArray[np.str_]:
    """The part of each hash; all of a group have that of its smallest."""
    # Mixed once more: the smallest of several is small, and twins would flock to the first part.
    percent = _mixed(_smallest(hashes, groups)) / 2.0**64 * 100
    ends = np.cumsum(list(SHARES.values()))[:-1]
    return np.asarray(list(SHARES))[np.searchsorted(ends, percent, side="right")]


def halves_by_hash(hashes: Hashes, groups: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each hash lies in the first of two halves; a group lies on one side.

    What decides has nothing to do with the part that a picture is in, so that each is halved.
    """
    found: NDArray[np.bool_] = _mixed(_mixed(_smallest(hashes, groups))) < np.uint64(2**63)
    return found


def _smallest(hashes: Hashes, groups: NDArray[np.int64]) -> Hashes:
    """For each picture the smallest hash of its group."""
    smallest = np.full(groups.max(initial=-1) + 1, np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(smallest, groups, hashes)
    return smallest[groups]


def _mixed(numbers: Hashes) -> Hashes:
    """Numbers spread evenly anew (the finaliser of SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
