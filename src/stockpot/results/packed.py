"""What is known of each image, as text in a result file: flags, groups and classes."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def pack_bits(flags: NDArray[np.bool_]) -> str:
    """Booleans as base64 text, eight to a byte."""
    return base64.b64encode(np.packbits(flags).tobytes()).decode("ascii")


def unpack_bits(text: str, length: int) -> NDArray[np.bool_]:
    """The inverse of `pack_bits`."""
    packed = np.frombuffer(base64.b64decode(text), dtype=np.uint8)
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
    steps = np.diff(numbers.astype("<i8"), prepend=0)
    return base64.b64encode(zlib.compress(steps.tobytes(), 9)).decode("ascii")


def unpack_groups(text: str) -> NDArray[np.int64]:
    """The numbers that `pack_groups` gave the labels."""
    steps = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<i8")
    return np.cumsum(steps).astype(np.int64)
