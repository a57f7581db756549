"""How many images go through a network at once: what is asked for, or what fits."""

from __future__ import annotations

import warnings

import torch

AUTO = "auto"
_PIXELS = {"cpu": 256 * 64 * 64, "cuda": 512 * 224 * 224}
"""Pixels of a batch that keep such a device busy; more of them are no faster."""
_MOST, _USUAL = 2048, 256


def batch_of(size: int | str, device: torch.device, pixels: int | None, count: int = 0) -> int:
    """Images of a batch: the number itself, or for `auto` what suits device and size.

    Args:
        size: a number, or `auto`: a power of two; on a GPU so much less that all batches are equal,
            since a recorded pass takes as long for a batch that is not full.
        device: where the network is.
        pixels: of one image at the network's size; none where more than passes takes memory.
        count: how many images there are, where that is known.
    """
    if isinstance(size, int):
        return size
    if pixels is None:
        return _USUAL
    room = _PIXELS.get(device.type, _PIXELS["cpu"]) // max(pixels, 1)
    most = min(_MOST, max(16, 1 << max(room, 1).bit_length() - 1))
    return -(-count // -(-count // most)) if count and device.type == "cuda" else most


class Halving:
    """Runs batches, and smaller ones from the moment that memory runs out."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.notes: list[str] = []

    def halve(self, problem: BaseException) -> None:
        """Use half the size from now on; gives up at one image."""
        if self.size <= 1:
            raise problem
        self.size //= 2
        note = f"out of memory: the batch was halved to {self.size} images"
        self.notes.append(note)
        warnings.warn(f"{note}.", UserWarning, stacklevel=2)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
