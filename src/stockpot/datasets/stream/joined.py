"""A batch that threads fill in place, each with the pictures that it has decoded.

To stack pictures and to join the stacks would copy each of them twice, into memory that is new
every time; with many threads the system spends longer on that memory than Pillow on a picture.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stockpot.errors import BadDataError

Pixels = np.ndarray[Any, np.dtype[np.uint8]]


class Joined:
    """So many pictures of one size, uint8 NCHW."""

    def __init__(self, count: int, *, fitted: bool) -> None:
        """No picture is there yet; memory is taken with the first.

        Args:
            count: how many there will be.
            fitted: whether something brings them to one size, for the message where it does not.
        """
        self._count, self._fitted = count, fitted
        self._sizes: set[tuple[int, ...]] = set()
        self._pixels: Pixels | None = None
        self._lock = threading.Lock()

    def put(self, place: int, pictures: Sequence[Pixels]) -> None:
        """Lay pictures down, one after the other, and note those of another size than the first."""
        for turn, picture in enumerate(pictures, start=place):
            with self._lock:
                self._sizes.add(picture.shape[1:])
                if self._pixels is None:
                    self._pixels = np.empty((self._count, *picture.shape), np.uint8)
            if picture.shape == self._pixels.shape[1:]:
                self._pixels[turn] = picture

    def whole(self) -> Tensor:
        """All of them, once all are there."""
        if len(self._sizes) > 1:
            shown = ", ".join(sorted(f"{height}x{width}" for height, width in self._sizes)[:4])
            raise BadDataError(
                f"expected pictures of one size in a batch, got {shown}"
                + (" after fitting." if self._fitted else "."),
                hint=""
                if self._fitted
                else "Give a `fit` that brings them to one size, as a model does.",
            )
        if self._pixels is None:
            raise ValueError("a batch of no pictures")
        return torch.from_numpy(self._pixels)
