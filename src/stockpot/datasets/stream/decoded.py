"""Decoded pictures, kept in memory for the next model or measure of a process.

A picture is known by the sha256 of its file and by the fit that brought it to its size, so that a
file that changes is another picture, and models of one geometry share. At most a quarter of the
memory that is free when the first picture is kept is used, and never more than 16 GiB: 100,000
pictures of 224 px. What does not fit is decoded anew each time.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any

import numpy as np

from stockpot.datasets.stream.geometry import Fit, told
from stockpot.engine.cores import usable_memory

Pixels = np.ndarray[Any, np.dtype[np.uint8]]

MOST = 16 * 2**30
_SHARE = 4
_FORGOTTEN = 32
"""After so many passes over sets of pictures, one that was in none of them makes room."""


def most_bytes() -> int:
    """What may be kept, of the memory that is free now."""
    return min(MOST, usable_memory() // _SHARE)


class DecodedPictures:
    """Pixels by content and fit, up to a number of bytes; safe for several threads."""

    def __init__(self, room: int | None = None) -> None:
        self._room = room
        self._kept: dict[Hashable, tuple[Pixels, int]] = {}
        self._bytes = 0
        self._passes = 0
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Somebody begins to go through a set of pictures."""
        self._passes += 1

    def find(self, content: str, fit: Hashable) -> Pixels | None:
        """The pixels, if they are here."""
        found = self._kept.get((content, fit))
        if found is None:
            return None
        # Only what is looked at anew is written again: that is once a pass.
        if found[1] != self._passes:
            with self._lock:
                self._kept[content, fit] = (found[0], self._passes)
        return found[0]

    def keep(self, content: str, fit: Hashable, pixels: Pixels) -> bool:
        """Keep pixels, if there is room; says whether they are here now.

        Those that came first stay: whoever goes through a set again begins at its begin, so that
        the ones kept last would always be gone by the time they are wanted.
        """
        with self._lock:
            if self._room is None:
                self._room = most_bytes()
            if self._bytes + pixels.nbytes > self._room:
                self._forget()
            if (content, fit) not in self._kept and self._bytes + pixels.nbytes <= self._room:
                self._kept[content, fit] = (pixels, self._passes)
                self._bytes += pixels.nbytes
            return (content, fit) in self._kept

    def _forget(self) -> None:
        old = [key for key, (_, last) in self._kept.items() if last < self._passes - _FORGOTTEN]
        for key in old:
            self._bytes -= self._kept.pop(key)[0].nbytes

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kept.clear()
            self._bytes = 0


def fit_key(fit: Fit | None) -> Hashable:
    """What decides the pixels that a fit makes; none where that cannot be told.

    What has words (`geometry.told`) counts by them, so that who has no model yet, but knows its
    geometry, keeps pictures where the model will look. Another method counts by its owner's
    `geometry`, or by the owner as a value.
    """
    if fit is None:
        return "as they are"
    if (words := told(fit)) is not None:
        return told_key(words)
    if isinstance(fit, partial):
        given = {key: _value(value) for key, value in fit.keywords.items()}
        return (fit.func, tuple(map(_value, fit.args)), tuple(sorted(given.items(), key=str)))
    owner = getattr(fit, "__self__", None)
    if owner is not None:
        return (getattr(fit, "__func__", None), getattr(owner, "geometry", owner))
    return None if getattr(fit, "__closure__", True) else fit


def told_key(words: Sequence[Any]) -> Hashable:
    """The same of a fit in plain values."""
    return tuple(tuple(word) if isinstance(word, list | tuple) else word for word in words)


def _value(argument: Any) -> Hashable:
    """An argument of a fit, which may be a fit itself."""
    return fit_key(argument) if callable(argument) else argument


DECODED = DecodedPictures()
