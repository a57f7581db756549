"""Where the pixels of a picture are, and what lies between them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

CIRCLE = 2 * math.pi


def rows_and_columns(pixels: Tensor) -> tuple[Tensor, Tensor]:
    """The number of each row, H x 1, and of each column, 1 x W, as floats."""
    height, width = pixels.shape[-2:]
    rows = torch.arange(height, dtype=torch.float32, device=pixels.device)
    columns = torch.arange(width, dtype=torch.float32, device=pixels.device)
    return rows[:, None], columns[None, :]


def side_of(pixels: Tensor) -> int:
    """The shorter side, of which lengths are shares; the original knew only squares."""
    return min(pixels.shape[-2:])


def per_picture(values: Tensor) -> Tensor:
    """One number per picture, ready to meet N x H x W."""
    return values[:, None, None]


def on_every_pixel(down: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers of rows and of columns, each at every place where these meet."""
    shape = (down + right).shape
    return down.expand(shape), right.expand(shape)


def sample(values: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Floats N x C x H x W, read between pixels at places N x H x W; black outside."""
    count, channels, height, width = values.shape
    top, left = down.floor(), right.floor()
    below, beside = down - top, right - left
    flat = values.flatten(2)
    found = torch.zeros_like(values)
    for row, share_down in ((top, 1 - below), (top + 1, below)):
        for column, share_right in ((left, 1 - beside), (left + 1, beside)):
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            place = row.clamp(0, height - 1) * width + column.clamp(0, width - 1)
            index = place.long().view(count, 1, -1).expand(-1, channels, -1)
            weight = (share_down * share_right * inside)[:, None]
            found.addcmul_(flat.gather(2, index).view_as(values), weight)
    return found
