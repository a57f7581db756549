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
from functools import lru_cache

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


@lru_cache(maxsize=1024)
def _stretch(given: int, made: int, first: int, last: int) -> tuple[float, float] | None:
    """Of a side of which `given` pixels become `made`: where those from `first` to `last` lie in
    what is given, if single precision can say so.
    """
    scale = Fraction(given, made)
    ends = first * scale, last * scale
    for one in (scale, *ends):
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
    box = _stretch(image.height, target.height, top, bottom)
    if box is not None:
        reach = _REACH[code] * max(image.height / target.height, 1.0)
        above = max(math.floor(box[0] - reach) - 1, 0)
        below = min(math.ceil(box[1] + reach) + 1, image.height)
        if (above, below) != (0, image.height):
            image = image.crop((0, above, image.width, below))
        box = box[0] - above, box[1] - above
    image = _along_rows(image, target.width, left, right, code)
    if box is not None:
        return image.resize((image.width, bottom - top), code, (0, box[0], image.width, box[1]))
    return image.resize((image.width, target.height), code).crop((0, top, image.width, bottom))


def _along_rows(
    image: Image.Image, made: int, left: int, right: int, code: Image.Resampling
) -> Image.Image:
    box, height = _stretch(image.width, made, left, right), image.height
    if box is not None:
        return image.resize((right - left, height), code, (box[0], 0, box[1], height))
    return image.resize((made, height), code).crop((left, 0, right, height))
