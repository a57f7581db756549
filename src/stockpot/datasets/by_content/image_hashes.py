"""Pictures known again by their pixels: eight bytes for each, and a thumbnail to find twins by.

The hash is that of the decoded 8-bit RGB pixels at their own size, before any model resizes them.
So a copy under another name, in another folder or in another lossless format is the same picture;
one that was compressed anew or rescaled is not (`twins.py` finds those).
"""

from __future__ import annotations

import hashlib
import weakref
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from stockpot.datasets.dataset import Images, TensorImages
from stockpot.datasets.stream.resizing import resize
from stockpot.types import ImageSize

Hashes = NDArray[np.uint64]
SIDE = 8
"""Thumbnails are so many pixels wide and high."""
_BYTES = 8
_BATCH = 256


class Look(NamedTuple):
    """What one decoding of all pictures has shown."""

    hashes: Hashes
    thumbnails: NDArray[np.uint8]
    """One row for each: `SIDE` x `SIDE` RGB pixels, each a mean around its place."""


def image_hashes(images: Images) -> Hashes:
    """One number for each picture; those of the last pictures that were asked for are kept."""
    known = _KEPT.get(id(images))
    if known is not None and known[0]() is images:
        return known[1]
    found = _hashes(_strips(images, thumbnails=False))
    if len(_KEPT) >= 24:
        _KEPT.clear()
    _KEPT[id(images)] = (weakref.ref(images), found)
    return found


_KEPT: dict[int, tuple[weakref.ref[Images], Hashes]] = {}
"""By identity: several models are measured on the same pictures."""


def look_at(images: Images) -> Look:
    """Hashes and thumbnails of all pictures."""
    strips = _strips(images, thumbnails=True)
    return Look(_hashes(strips), strips[:, _BYTES : _BYTES + 3 * SIDE * SIDE])


def _hashes(strips: NDArray[np.uint8]) -> Hashes:
    # Little-endian everywhere: the numbers are written to files.
    return np.ascontiguousarray(strips[:, :_BYTES]).view("<u8").reshape(-1).astype(np.uint64)


def _strips(images: Images, thumbnails: bool) -> NDArray[np.uint8]:
    """One row of bytes for each picture."""

    def fit(picture: Image.Image) -> Image.Image:
        # What reads pictures ahead by threads hands out pixels: what is found travels as such.
        return Image.fromarray(_strip(np.asarray(picture), thumbnails).reshape(1, -1, 3))

    if isinstance(images, TensorImages):
        pictures = images.pixels.permute(0, 2, 3, 1)
        rows = [_strip(np.ascontiguousarray(row.numpy()), thumbnails) for row in pictures]
    else:
        parts = [batch.numpy().transpose(0, 2, 3, 1) for batch in images.batches(_BATCH, fit)]
        rows = [row.reshape(-1) for part in parts for row in part]
    width = _width(thumbnails)
    return np.stack(rows) if rows else np.zeros((0, width), dtype=np.uint8)


def _width(thumbnails: bool) -> int:
    return -(-(_BYTES + (3 * SIDE * SIDE if thumbnails else 0)) // 3) * 3


def _strip(pixels: NDArray[np.uint8], thumbnails: bool) -> NDArray[np.uint8]:
    digest = hashlib.blake2b(repr(pixels.shape).encode(), digest_size=_BYTES)
    digest.update(np.ascontiguousarray(pixels).data)
    strip = np.zeros(_width(thumbnails), dtype=np.uint8)
    strip[:_BYTES] = np.frombuffer(digest.digest(), dtype=np.uint8)
    if thumbnails:
        small = resize(Image.fromarray(pixels), ImageSize(SIDE, SIDE), Image.Resampling.BILINEAR)
        strip[_BYTES : _BYTES + 3 * SIDE * SIDE] = np.asarray(small).reshape(-1)
    return strip
