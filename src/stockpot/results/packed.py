"""What is known of each image, as text in a result file: flags, groups and classes."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stockpot.errors import UserError
from stockpot.foreign import reading

_MOST_GROUPED = 8 * 100_000_000
"""Bytes that are unpacked: a few packed ones may stand for more than any memory holds."""
_TEXTS = 32
_texts: dict[bytes, str] = {}
"""Numbers packed last, by their sha256: all cells of a dataset say the same of its images."""


def pack_bits(flags: NDArray[np.bool_]) -> str:
    """Booleans as base64 text, eight to a byte."""
    return base64.b64encode(np.packbits(flags).tobytes()).decode("ascii")


def unpack_bits(text: str, length: int) -> NDArray[np.bool_]:
    """The inverse of `pack_bits`."""
    with reading("the outcomes of a result", UserError):
        packed = np.frombuffer(base64.b64decode(text), dtype=np.uint8)
        if not 0 <= length <= 8 * len(packed):
            raise ValueError(f"{length} images, and answers for {8 * len(packed)} at most")
        return np.unpackbits(packed, count=length).astype(bool)


def pack_groups(labels: Sequence[str] | None) -> str:
    """Labels as text, equal ones as equal numbers; nothing where no image belongs to another.

    Copies mostly lie in the order of their originals, so that the differences are few numbers.
    """
    if labels is None or len(set(labels)) == len(labels):
        return ""
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    return _packed(np.array([numbers[label] for label in labels]))


def pack_labels(labels: NDArray[np.int64], classes: Sequence[str]) -> tuple[str, list[str]]:
    """Class numbers as text, and the names of the classes that occur, which they are places in."""
    known, places = np.unique(labels, return_inverse=True)
    return _packed(places), [classes[number] for number in known]


def _packed(numbers: NDArray[np.int64]) -> str:
    steps = np.diff(numbers.astype("<i8"), prepend=0).tobytes()
    mark = hashlib.sha256(steps).digest()
    text = _texts.get(mark)
    if text is None:
        # A second or more for 50,000 labels in no order.
        text = base64.b64encode(zlib.compress(steps, 9)).decode("ascii")
        while len(_texts) >= _TEXTS:
            _texts.pop(next(iter(_texts)), None)
        _texts[mark] = text
    return text


def unpack_groups(text: str) -> NDArray[np.int64]:
    """The numbers that `pack_groups` gave the labels."""
    with reading("the groups of a result", UserError):
        unpacked = zlib.decompressobj().decompress(base64.b64decode(text), _MOST_GROUPED)
        return np.cumsum(np.frombuffer(unpacked, dtype="<i8")).astype(np.int64)
