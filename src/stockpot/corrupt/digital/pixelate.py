"""Pixelate: shrink with a box filter, enlarge again."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.digital.pillow import map_pictures
from stockpot.corrupt.draws import Draws
from stockpot.datasets.stream.resizing import resize
from stockpot.types import ImageSize


@corruptions.register(
    "pixelate", paper="arXiv:1903.12261", group="digital", benchmark=True, whole_batch=True
)
def pixelate(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Shrink to a share of the side and enlarge again, both with a box filter."""
    (share,) = constants
    height, width = pixels.shape[2:]
    small = int(height * share), int(width * share)
    return shrink_by_pillow(pixels, *small) if pixels.is_cpu else shrink(pixels, *small)


def shrink_by_pillow(pixels: Tensor, rows: int, columns: int) -> Tensor:
    """Pillow's own filter, in threads."""
    height, width = pixels.shape[2:]

    # Enlarging with a box of one small pixel is a lookup, for which Pillow's NEAREST is ten times
    # faster; it differs only where a centre falls on a border and its running sum just misses it.
    same = _nearest_is_box(height, rows) and _nearest_is_box(width, columns)
    back = Image.Resampling.NEAREST if same else Image.Resampling.BOX

    def there_and_back(picture: Image.Image) -> Image.Image:
        small = resize(picture, ImageSize(rows, columns), Image.Resampling.BOX)
        return small.resize((width, height), back)

    return map_pictures(there_and_back, pixels)


def shrink(pixels: Tensor, rows: int, columns: int) -> Tensor:
    """The same in integer arithmetic for any device: each small pixel is the mean of a run."""
    height, width = pixels.shape[2:]
    small = _run_means(_run_means(pixels.int(), 3, columns), 2, rows)
    small = small.to(torch.uint8)
    small = small.index_select(2, _runs(height, rows, pixels.device)[2])
    return small.index_select(3, _runs(width, columns, pixels.device)[2])


def _run_means(values: Tensor, axis: int, parts: int) -> Tensor:
    starts, lengths, _ = _runs(values.shape[axis], parts, values.device)
    lengths = lengths.view(-1, 1) if axis == 2 else lengths
    total = values.index_select(axis, starts)
    for step in range(1, -(-values.shape[axis] // parts) + 1):
        index = (starts + step).clamp(max=values.shape[axis] - 1)
        total = total + values.index_select(axis, index) * (lengths > step)
    return (2 * total + lengths) // (2 * lengths)  # halves go up, as in Pillow


@lru_cache(maxsize=64)
def _runs(size: int, parts: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """First pixel and length of the run that each part averages, and the part shown by each pixel.

    In Pillow's own double arithmetic, because a pixel whose centre lies on a border belongs to one
    side or the other by its rounding.
    """
    scale = size / parts
    starts, lengths = [], []
    for part in range(parts):
        centre = (part + 0.5) * scale
        first, end = int(centre - 0.5 * scale + 0.5), int(centre + 0.5 * scale + 0.5)
        members = [
            pixel
            for pixel in range(first, min(end, size))
            if -0.5 < (pixel - centre + 0.5) * (1 / scale) <= 0.5
        ]
        starts.append(members[0])
        lengths.append(len(members))
    rows = starts, lengths, _shown(size, parts)
    one, two, three = (torch.tensor(row, device=device) for row in rows)
    return one, two, three


def _shown(size: int, parts: int) -> list[int]:
    return [int((pixel + 0.5) * (parts / size)) for pixel in range(size)]


@lru_cache(maxsize=64)
def _nearest_is_box(size: int, parts: int) -> bool:
    steps = np.full(size, parts / size)
    steps[0] /= 2
    return bool(np.array_equal(np.floor(np.add.accumulate(steps)), _shown(size, parts)))
