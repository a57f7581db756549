"""The splits of data that has none: parts by content, so that what is trained on is not tested on.

The hash of a picture's pixels decides: 60 % of all hashes are `train`, 20 % `val` and 20 % `test`.
Near twins go where the smallest hash among them says. So a picture keeps its part when it is
renamed, moved, or joined by other pictures; only a new twin with a smaller hash can move it.
Classes are not balanced: a part holds of each class what the hashes give it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stockpot.datasets.by_content.image_hashes import Hashes, look_at
from stockpot.datasets.by_content.split_names import SHARES, WHOLE, check_part
from stockpot.datasets.by_content.twins import twin_groups
from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadDataError


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
