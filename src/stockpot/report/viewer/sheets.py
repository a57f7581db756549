"""Pictures for the viewer: which are shown, and how they lie on sheets.

A site holds pictures up to a limit. Those that models disagree about come first, then those that
all get wrong. Sheets of many small pictures are files that a browser loads when it comes to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from stockpot.report.viewer.collect import ImageSet, Shown
from stockpot.results.schema import CellResult

SIDE = 128
"""Pixels of the longer side at most; smaller pictures stay as they are."""
ACROSS = 8
"""Pictures in a row of a sheet, and rows of it."""


class Pictures(Protocol):
    """Where pictures come from."""

    def original(self, rows: Sequence[int]) -> list[Image.Image]:
        """The images of these rows as they are."""
        ...

    def under(self, cell: CellResult, record: str, rows: Sequence[int]) -> list[Image.Image] | None:
        """The same as a record of a result was about; none where that cannot be had again."""
        ...

    def labels(self) -> list[str]:
        """The class of every image."""
        ...

    def names(self) -> list[str]:
        """What every image is called."""
        ...


def told_apart(images: ImageSet, conditions: Sequence[Shown], limit: int) -> list[int]:
    """The rows to show: where most models disagree under these conditions, then most wrong."""
    split = np.zeros(images.n, dtype=np.int64)
    wrong = np.zeros(images.n, dtype=np.int64)
    for shown in conditions:
        votes = np.array([column.correct for column in shown.columns.values()])
        split += votes.any(axis=0) & ~votes.all(axis=0)
        wrong += (~votes).sum(axis=0)
    order: NDArray[np.int64] = np.lexsort((np.arange(images.n), -wrong, -split))
    return sorted(order[:limit].tolist())


def write_sheets(folder: Path, pictures: Sequence[Image.Image]) -> int:
    """Sheets of pictures in this order, 0.jpg and so on; gives back the side of their squares."""
    folder.mkdir(parents=True, exist_ok=True)
    longest = max((max(picture.size) for picture in pictures), default=1)
    side, each = min(SIDE, longest), ACROSS * ACROSS
    for number, start in enumerate(range(0, len(pictures), each)):
        some = pictures[start : start + each]
        rows = -(-len(some) // ACROSS)
        sheet = Image.new("RGB", (ACROSS * side, rows * side), (127, 127, 127))
        for place, picture in enumerate(some):
            small = picture.convert("RGB")
            if max(small.size) != side:
                share = side / max(small.size)
                size = max(1, round(small.width * share)), max(1, round(small.height * share))
                small = small.resize(size, Image.Resampling.LANCZOS)
            across, down = place % ACROSS * side, place // ACROSS * side
            middle = (side - small.width) // 2, (side - small.height) // 2
            sheet.paste(small, (across + middle[0], down + middle[1]))
        sheet.save(folder / f"{number}.jpg", quality=88, subsampling=0)
    return side
