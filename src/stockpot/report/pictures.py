"""Pictures that a page is given (by `run/pictures.py`): results hold no pixels of the data."""

from __future__ import annotations

from typing import NamedTuple


class Sheet(NamedTuple):
    """Many small pictures in one, and where each lies."""

    source: str
    """A data URI."""
    tile: int
    across: int
    places: dict[str, int]
    """By `corruption:severity`, the number of the tile, from left to right and down."""


class Pictures(NamedTuple):
    """What is at hand, by the names of datasets as results have them."""

    corrupted: dict[str, Sheet]
    classes: dict[str, dict[str, list[str]]]
    """By class, pictures as data URIs."""


NONE = Pictures({}, {})
