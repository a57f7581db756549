"""Resizing by Pillow, along the rows first and then along the columns, and only what is kept.

Pillow rounds to 8 bits between the two, so their order decides pixels. Up to version 12 rows came
first (but for pictures a hundred times taller than wide, in its last releases), with which the
pictures and scores of this field were made; since 13 columns do where a picture is much taller than
wide. Here it is rows, whatever the version.

What will be cropped need not be resized: columns not along their height, and of a side for which
Pillow can be told exactly where the part lies (it reads single precision), nothing else at all.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from PIL import Image

from stockpot.types import ImageSize

_REACH = {
    Image.Resampling.BOX: 0.5,
    Image.Resampling.BILINEAR: 1.0,
    Image.Resampling.HAMMING: 1.0,
    Image.Resampling.BICUBIC: 2.0,
    Image.Resampling.LANCZOS: 3.0,
}
"""How far filters see. The nearest neighbour is none: it is found in both directions at once."""
_MODES = ("RGB", "L")
"""Transparent pictures are converted before and after they are resized; others have no 8 bits."""
_EXACT = 2**24

Part = tuple[int, int, int, int]
"""Left, top, right and bottom, as `crop` takes them."""


class _Stretch(NamedTuple):
    """A part of one side: `given` pixels become `made`, of which `first` to `last` are wanted."""

    given: int
    made: int
    first: int
    last: int

    @property
    def scale(self) -> Fraction:
        return Fraction(self.given, self.made)

    @property
    def box(self) -> tuple[float, float] | None:
        """Where the stretch lies in what is given, if single precision can say so."""
        ends = self.first * self.scale, self.last * self.scale
        for one in (self.scale, *ends):
            if one.numerator >= _EXACT or one.denominator & (one.denominator - 1):
                return None
        return float(ends[0]), float(ends[1])


def resize(
    image: Image.Image, target: ImageSize, code: Image.Resampling, part: Part | None = None
) -> Image.Image:
    """A picture brought to a size, and the part of it that is wanted.

    Args:
        image: a picture.
        target: the size of the whole.
        code: the filter.
        part: what is wanted of the whole; all of it if left out. What lies beyond it is black.
    """
    whole = (0, 0, target.width, target.height)
    left, top, right, bottom = kept = part or whole
    if code not in _REACH or image.mode not in _MODES:
        image = image.resize((target.width, target.height), code)
        return image if kept == whole else image.crop(kept)
    if kept == whole:
        rows_done = image.resize((target.width, image.height), code)
        return rows_done.resize((target.width, target.height), code)
    if not (0 <= left < right <= target.width and 0 <= top < bottom <= target.height):
        return resize(image, target, code).crop(kept)
    across = _Stretch(image.width, target.width, left, right)
    down = _Stretch(image.height, target.height, top, bottom)
    box = down.box
    if box is not None:
        reach = _REACH[code] * max(float(down.scale), 1.0)
        above = max(math.floor(box[0] - reach) - 1, 0)
        below = min(math.ceil(box[1] + reach) + 1, image.height)
        if (above, below) != (0, image.height):
            image = image.crop((0, above, image.width, below))
        box = box[0] - above, box[1] - above
    image = _along_rows(image, across, code)
    if box is not None:
        return image.resize((image.width, bottom - top), code, (0, box[0], image.width, box[1]))
    return image.resize((image.width, target.height), code).crop((0, top, image.width, bottom))


def _along_rows(image: Image.Image, across: _Stretch, code: Image.Resampling) -> Image.Image:
    box, height = across.box, image.height
    if box is not None:
        return image.resize((across.last - across.first, height), code, (box[0], 0, box[1], height))
    return image.resize((across.made, height), code).crop((across.first, 0, across.last, height))
