"""How a decoded picture is brought to a size, by Pillow alone: nothing here needs torch.

A fit that can be said in plain values (`told`) can be done by another process (`made`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from PIL import Image

from stockpot.datasets.stream.resizing import Part, resize
from stockpot.types import ImageSize

Fit = Callable[[Image.Image], Image.Image]
"""Brings a decoded picture to the size a model wants."""
Interpolation = Literal["nearest", "lanczos", "bilinear", "bicubic", "box"]
CODES: tuple[Interpolation, ...] = ("nearest", "lanczos", "bilinear", "bicubic", "box")
"""In the order of Pillow's numbers."""

PUBLISHED_SIDE = 224
INCEPTION_SIDE = 299
TINY_SIDE = 64
_SHARE = 0.875


class Geometry(NamedTuple):
    """Resize to `resized` (a short side, or an exact size), then crop the centre to `size`."""

    size: ImageSize
    resized: int | ImageSize
    interpolation: Interpolation

    def fit(self, image: Image.Image) -> Image.Image:
        """Bring a picture to the size."""
        given = ImageSize(image.height, image.width)
        target = self.target(given)
        top, left = corner(target, self.size)
        # A crop beyond the border is filled with black, as the hub's processors do.
        part = (left, top, left + self.size.width, top + self.size.height)
        if given != target:
            return resize(image, target, Image.Resampling(CODES.index(self.interpolation)), part)
        return image.crop(part) if target != self.size else image

    def target(self, given: ImageSize) -> ImageSize:
        """The size of a picture of this size before it is cropped."""
        if isinstance(self.resized, ImageSize):
            return self.resized
        return _by_short_side(given, self.resized)


def _by_short_side(given: ImageSize, wanted: int) -> ImageSize:
    short = min(given)
    return ImageSize(*(wanted if side == short else int(wanted * side / short) for side in given))


def corner(outer: ImageSize, inner: ImageSize) -> tuple[int, int]:
    """Top and left of what is cropped from the centre."""
    return (outer.height - inner.height) // 2, (outer.width - inner.width) // 2


def published_crop(image: Image.Image, side: int = PUBLISHED_SIDE) -> Image.Image:
    """A picture as the authors of ImageNet-C cut it: the short side to 8/7, then the centre.

    For 299 px they took the centre first, 87.5 % of both sides, and squeezed it to a square; for
    64 px they squeezed the whole. A picture that has the size already is left alone.
    """
    if image.size == (side, side):
        return image
    given, bilinear = ImageSize(image.height, image.width), Image.Resampling.BILINEAR
    if side == TINY_SIDE:
        return resize(image, ImageSize(side, side), bilinear)
    if side == INCEPTION_SIDE:
        kept = ImageSize(int(given.height * _SHARE), int(given.width * _SHARE))
        return resize(image.crop(_centre(given, kept)), ImageSize(side, side), bilinear)
    target = _by_short_side(given, side * 8 // 7)
    return resize(image, target, bilinear, _centre(target, ImageSize(side, side)))


def _centre(outer: ImageSize, inner: ImageSize) -> Part:
    # Rounded half to even, as torchvision's crop does, with which the files were made.
    left, top = round((outer.width - inner.width) / 2), round((outer.height - inner.height) / 2)
    return left, top, left + inner.width, top + inner.height


def told(fit: Fit | None) -> list[Any] | None:
    """A fit in plain values, with the size that it gives first; none where it has no such words."""
    if isinstance(fit, partial):
        if fit.func is not published_crop or fit.args or set(fit.keywords) != {"side"}:
            return None
        side = int(fit.keywords["side"])
        return [[side, side], "published"]
    owner = getattr(fit, "__self__", None)
    geometry = owner if isinstance(owner, Geometry) else getattr(owner, "geometry", None)
    if not isinstance(geometry, Geometry) or getattr(fit, "__name__", "") != "fit":
        return None
    return [list(geometry.size), "model", geometry.resized, geometry.interpolation]


def made(words: Sequence[Any]) -> Fit:
    """The fit of such values, which may have been through JSON."""
    size = ImageSize(*words[0])
    if words[1] == "published":
        return partial(published_crop, side=size.height)
    resized = words[2] if isinstance(words[2], int) else ImageSize(*words[2])
    return Geometry(size, resized, words[3]).fit
