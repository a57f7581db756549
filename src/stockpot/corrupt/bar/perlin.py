"""Perlin noise: smooth turbulence over five octaves."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.bar.places import rows_and_columns, side_of
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.draws import Draws
from stockpot.corrupt.levels import truncate

_CELLS = 256
_OCTAVES = (1, 2, 4, 8, 16)


@corruptions.register("perlin_noise", paper="arXiv:2102.11273", family="ImageNet-C-bar")
def perlin_noise(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Blend the picture with grey turbulence."""
    (strength,) = constants
    order = draws.bits(_CELLS).argsort(dim=1, stable=True)
    slopes = draws.integers(-_CELLS, _CELLS, (_CELLS, 2), 1).float()
    slopes = slopes / slopes.norm(dim=2, keepdim=True).clamp(min=1)
    return turbulence(pixels, order, slopes, strength / 20)


def turbulence(pixels: Tensor, order: Tensor, slopes: Tensor, share: float) -> Tensor:
    """Blend with turbulence.

    Args:
        pixels: the pictures.
        order: a permutation of 256 numbers per picture.
        slopes: 256 directions per picture, N x 256 x 2.
        share: of the turbulence in the result.
    """
    count, (height, width) = len(pixels), pixels.shape[2:]
    rows, columns = rows_and_columns(pixels)
    cell = 32 * side_of(pixels) / 224
    total = torch.zeros(count, height, width, device=pixels.device)
    for octave in _OCTAVES:
        noise = _noise(rows[:, 0] * octave / cell, columns[0] * octave / cell, order, slopes)
        total += noise.abs_() / octave
    grey = (total / 2 + 0.5).clamp_(0, 1)[:, None]
    return truncate(pixels.float().mul_(1 - share).add_(grey, alpha=255 * share))


def _noise(down: Tensor, right: Tensor, order: Tensor, slopes: Tensor) -> Tensor:
    """Gradient noise where rows and columns meet, N x H x W."""
    top, left = down.floor(), right.floor()
    inner_down, inner_right = (down - top)[:, None], (right - left)[None]
    top, left = top.long() % _CELLS, left.long() % _CELLS

    def corner(below: int, beside: int) -> Tensor:
        through = order[:, (top + below) % _CELLS][:, :, None] + (left + beside) % _CELLS
        index = order.gather(1, (through % _CELLS).flatten(1))
        slope = slopes.gather(1, index[..., None].expand(-1, -1, 2)).view(*through.shape, 2)
        return (inner_down - below) * slope[..., 0] + (inner_right - beside) * slope[..., 1]

    ease_down = inner_down**2 * (3 - 2 * inner_down)
    ease_right = inner_right**2 * (3 - 2 * inner_right)
    first, second = corner(0, 0), corner(0, 1)
    first = first + ease_down * (corner(1, 0) - first)
    second = second + ease_down * (corner(1, 1) - second)
    return 1.5 * (first + ease_right * (second - first))
