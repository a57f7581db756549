"""Zoom: the picture averaged over magnifications, as when a camera moves towards its subject."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.draws import Draws
from stockpot.corrupt.fused.kernel import Kernel
from stockpot.corrupt.levels import truncate

_ZOOMS = Kernel("zooms:zooms")


@corruptions.register("zoom_blur", paper="arXiv:1903.12261", group="blur", benchmark=True)
def zoom_blur(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Average the picture with enlargements of its centre."""
    end, step = constants
    factors = tuple(np.arange(1, end, step).tolist())
    total = _ZOOMS(
        lambda: _sum(pixels, factors), pixels.device,
        pixels, *_axes(*pixels.shape[2:], factors, pixels.device),
    )  # fmt: skip
    return truncate(total.div_(len(factors) + 1))


def _sum(pixels: Tensor, factors: tuple[float, ...]) -> Tensor:
    picture = pixels.float()
    # Quirk kept: factor 1 is in the range and the original is added once more besides, so it counts
    # twice among n + 1 terms.
    total = picture * 2
    for factor in factors[1:]:
        total += clipped_zoom(picture, factor)
    return total


@lru_cache(maxsize=64)
def _axes(
    height: int, width: int, factors: tuple[float, ...], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Where rows and columns are read at each factor but the first."""
    rows, columns = (
        torch.stack([_zoom_axis(size, factor).float() for factor in factors[1:]]).to(device)
        for size in (height, width)
    )
    return rows, columns


def clipped_zoom(images: Tensor, factor: float) -> Tensor:
    """Enlarge the centre by `factor` with linear interpolation, keeping the size."""
    grid = _zoom_grid(images.shape[-2], images.shape[-1], factor, images.device)
    grid = grid.expand(len(images), *grid.shape)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=True)


@lru_cache(maxsize=256)
def _zoom_grid(height: int, width: int, factor: float, device: torch.device) -> Tensor:
    # Only the axes are made by the processor, whose cores may all be decoding: it would wait for
    # them at every operation on a whole grid.
    rows, columns = (_zoom_axis(size, factor).float().to(device) for size in (height, width))
    return torch.stack(torch.meshgrid(columns, rows, indexing="xy"), -1)


def _zoom_axis(size: int, factor: float) -> Tensor:
    """Where each output reads, from -1 (first pixel) to 1 (last pixel).

    The crop of ceil(size / factor) pixels is spread over round(crop * factor) with its corner
    pixels fixed, and what is too much is trimmed from both sides.
    """
    crop = math.ceil(size / factor)
    enlarged = round(crop * factor)
    first = (size - crop) // 2
    trimmed = (enlarged - size) // 2
    output = torch.arange(size, dtype=torch.float64) + trimmed
    source = first + output * (crop - 1) / max(1, enlarged - 1)
    return source / (size - 1) * 2 - 1
