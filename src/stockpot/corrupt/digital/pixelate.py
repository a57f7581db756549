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

    def there_and_back(picture: Image.Image) -> Image.Image:
        small = picture.resize((columns, rows), Image.Resampling.BOX)
        # Enlarging with a box of one small pixel is Pillow's NEAREST, which is faster.
        return small.resize((width, height), Image.Resampling.NEAREST)

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

    A pixel belongs to the box that holds its centre, a centre on a border to the box before it.
    """
    centres = np.arange(size) + 0.5
    owner = np.ceil(centres * (parts / size) - 1e-9).astype(np.int64) - 1
    starts = np.searchsorted(owner, np.arange(parts))
    lengths = np.bincount(owner, minlength=parts)
    shown = np.floor(centres * (parts / size) + 1e-9).astype(np.int64).clip(max=parts - 1)
    one, two, three = (torch.from_numpy(array).to(device) for array in (starts, lengths, shown))
    return one, two, three
