"""Fog: a random cloud (diamond-square fractal) laid over the picture."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.draws import Draws
from stockpot.corrupt.fused.kernel import Kernel
from stockpot.corrupt.levels import truncate

_OCTAVE = Kernel("clouds:octave")


@corruptions.register("fog", paper="arXiv:1903.12261", group="weather", benchmark=True)
def fog(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Lay a fractal cloud over the picture and dim the sum to the picture's range."""
    side = cloud_side(max(pixels.shape[-2:]))
    return add_cloud(pixels, constants, draws.uniform((side * side - 1,)) * 2 - 1)


def add_cloud(pixels: Tensor, constants: Constants, uniform: Tensor) -> Tensor:
    """Fog from given fields, uniform in [-1, 1), N x (side^2 - 1), in the order of the cloud."""
    strength, decay = constants
    height, width = pixels.shape[-2:]
    cloud = plasma(uniform, decay)[:, None, :height, :width]
    values = pixels.float()
    brightest = values.amax((1, 2, 3), keepdim=True)
    dimmed = brightest / (brightest + 255 * strength)
    return truncate(torch.add(values, cloud, alpha=255 * strength).mul_(dimmed))


def cloud_side(side: int) -> int:
    """The smallest power of two that covers the longer side: 256 for 224 px, 32 for 32 px."""
    return 1 << (side - 1).bit_length()


def plasma(uniform: Tensor, decay: float) -> Tensor:
    """The diamond-square fractal on a torus, scaled to [0, 1]; N x side x side.

    Each octave takes three blocks of the field: the middles of squares, then of horizontal and of
    vertical edges. Quirk kept: an octave's roughness w enters squared, as w * U(-w, w).
    """
    batch, count = uniform.shape
    side = round((count + 1) ** 0.5)
    grid = uniform.new_zeros(batch, 1, 1)
    roughness, start = 100.0, 0
    while grid.shape[-1] < side:
        size = grid.shape[-1]
        field = uniform[:, start : start + 3 * size * size]
        grid = _OCTAVE(
            partial(_octave, grid, field, roughness**2), grid.device, grid, field, roughness**2
        )
        start += 3 * size * size
        roughness /= decay
    grid = grid - grid.amin((1, 2), keepdim=True)
    return grid / grid.amax((1, 2), keepdim=True)


def _octave(grid: Tensor, field: Tensor, roughness: float) -> Tensor:
    """A grid of twice the side."""
    batch, size, _ = grid.shape
    field = field.view(batch, 3, size, size) * roughness
    below = grid + grid.roll(-1, 1)
    middle = (below + below.roll(-1, 2)) / 4 + field[:, 0]
    on_rows = (middle + middle.roll(1, 1) + grid + grid.roll(-1, 2)) / 4 + field[:, 1]
    on_columns = (middle + middle.roll(1, 2) + grid + grid.roll(-1, 1)) / 4 + field[:, 2]
    upper = torch.stack([grid, on_rows], -1)
    lower = torch.stack([on_columns, middle], -1)
    return torch.stack([upper, lower], 2).view(batch, 2 * size, 2 * size)
