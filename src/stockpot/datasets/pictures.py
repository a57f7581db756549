"""Opening one picture of any kind as RGB, and seeing cheaply whether a file is whole."""

from __future__ import annotations

import io
import os
import warnings
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from stockpot.errors import BadDataError

SUFFIXES = frozenset(
    (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
)

# `opened` has a limit of its own, and threads cannot silence a warning each for itself.
warnings.simplefilter("ignore", Image.DecompressionBombWarning)

BROKEN = (Exception,)
"""What Pillow raises for a file that it cannot decode: its readers of some forty formats raise
whatever a spoilt byte leads them to (SyntaxError, struct.error, IndexError, MemoryError, ...)."""

MOST_PIXELS = 90_000_000
"""Of one picture, as its header says: a file of a few kB can promise what fills any memory."""

ORIENTED = frozenset(("exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp"))
"""What a picture's facts hold when they may say which way is up; asking further is slow."""


class Piece(NamedTuple):
    """A picture inside a larger file, such as a tar; read when it is asked for."""

    path: Path
    start: int
    size: int

    def read_bytes(self) -> bytes:
        """The encoded picture."""
        with self.path.open("rb") as stream:
            stream.seek(self.start)
            return stream.read(self.size)

    def stat(self) -> os.stat_result:
        """The facts of the file that holds it."""
        return self.path.stat()

    def __str__(self) -> str:
        return f"{self.path}[{self.start}:{self.start + self.size}]"


Encoded = Path | bytes | Piece
"""A picture that is not decoded yet."""


def open_rgb(source: Encoded) -> Image.Image:
    """The picture upright in RGB; what is transparent becomes white."""
    with opened(source) as picture:
        picture.load()
        if not ORIENTED.isdisjoint(picture.info) or picture.format in ("TIFF", "MPO"):
            return as_rgb(ImageOps.exif_transpose(picture))
        return as_rgb(picture)


def opened(source: Encoded | BinaryIO) -> Image.Image:
    """A picture whose pixels are not read yet, and are not too many."""
    if isinstance(source, Piece):
        source = source.read_bytes()
    picture = Image.open(io.BytesIO(source) if isinstance(source, bytes) else source)
    width, height = picture.size
    if width * height > MOST_PIXELS:
        picture.close()
        raise ValueError(f"{width} x {height} pixels; at most {MOST_PIXELS} in all are decoded")
    return picture


def check_whole(data: bytes) -> None:
    """Raise when the bytes are no picture or are cut short.

    A PNG proves itself by its checksums, a JPEG or WebP by its end; only what is in doubt is
    decoded.
    """
    with opened(data) as picture:
        if picture.format == "PNG" and b"IEND" in data[-64:]:
            picture.verify()
            return
        if picture.format == "JPEG" and b"\xff\xd9" in data[-64:]:
            return
        if picture.format == "WEBP" and len(data) >= 8 + int.from_bytes(data[4:8], "little"):
            return
        picture.load()


def as_rgb(picture: Image.Image) -> Image.Image:
    """Any mode as RGB; what is transparent becomes white."""
    if picture.mode == "RGB" and "transparency" not in picture.info:
        return picture
    if picture.mode.startswith(("I", "F")):
        values = np.asarray(picture)
        return Image.fromarray(_levels(values, wide=picture.mode.startswith("I;16"))).convert("RGB")
    if picture.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in picture.info:
        overlay = picture.convert("RGBA")
        canvas = Image.new("RGBA", overlay.size, "white")
        canvas.alpha_composite(overlay)
        return canvas.convert("RGB")
    return picture.convert("RGB")


def _levels(values: NDArray[Any], *, wide: bool) -> NDArray[np.uint8]:
    """Grey levels of a picture whose values are no bytes: of 8 or 16 bits, or floats from 0 to 1.

    Pillow's own conversion clips at 255, so that most of them would be white, or black.
    """
    low, high = values.min(initial=0), values.max(initial=0)
    real = np.issubdtype(values.dtype, np.floating)
    if not (low >= 0 and high <= (255 if real else 65535)):
        known = "0 to 1 or 255" if real else "0 to 255 or 65535"
        raise BadDataError(f"expected grey values from {known}, got {low:g} to {high:g}")
    if real:
        return (values * (255 if high <= 1 else 1)).round().astype(np.uint8)
    # 16 bits per pixel: keep the upper half.
    return (values >> (8 if wide or high > 255 else 0)).astype(np.uint8)
