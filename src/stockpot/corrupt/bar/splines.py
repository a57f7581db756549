"""Colours zoomed apart, and blur around the centre: both with cubic splines, as the original."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from stockpot.corrupt import corruptions
from stockpot.corrupt.bar.places import rows_and_columns
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.draws import Draws
from stockpot.corrupt.levels import truncate

_TURNS = 21
_ORDERS = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))


@corruptions.register(
    "transverse_chromatic_abberation", paper="arXiv:2102.11273", family="CIFAR-10-C-bar"
)
def transverse_chromatic_abberation(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Zoom the three colours by different factors, which of them by chance."""
    (strength,) = constants
    orders = torch.tensor(_ORDERS, device=pixels.device)[draws.integers(0, 6, (1,))[:, 0].long()]
    return zoom_apart(pixels, orders, strength / 20)


def zoom_apart(pixels: Tensor, orders: Tensor, share: float) -> Tensor:
    """Zoom each channel by 1, 1 + share / 2 or 1 + share, as its number N x 3 says."""
    height, width = pixels.shape[2:]
    factors = (1.0, 1 + share / 2, 1 + share)
    down, across = (
        torch.stack([zoom_matrix(length, factor, pixels.device) for factor in factors])
        for length in (height, width)
    )
    zoomed = down[orders] @ pixels.float() @ across[orders].transpose(2, 3)
    return truncate(zoomed.add_(0.5))


@lru_cache(maxsize=64)
def zoom_matrix(size: int, factor: float, device: torch.device) -> Tensor:
    """The middle of a line, zoomed: each new value is a B-spline's over four old ones.

    The values themselves serve as the spline's coefficients, so that zooming also smooths.
    """
    longer = round(size * factor)
    first = (longer - size) // 2
    places = np.arange(first, first + size, dtype=np.float64)
    places *= (size - 1) / max(longer - 1, 1)
    return torch.from_numpy(_weights(places, size)).float().to(device)


@corruptions.register("circular_motion_blur", paper="arXiv:2102.11273", family="CIFAR-10-C-bar")
def circular_motion_blur(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Turn the picture about its centre while the shutter is open."""
    (strength,) = constants
    return turn_blur(pixels, 1.5 * strength)


def turn_blur(pixels: Tensor, degrees: float) -> Tensor:
    """The mean of pictures turned by up to so many degrees either way, the middle ones heavier."""
    height, width = pixels.shape[2:]
    values = pixels.float()
    down, across = (_coefficients(length, pixels.device) for length in (height, width))
    spline = down @ values @ across.T
    total, weights = torch.zeros_like(values), 0.0
    for step in range(_TURNS):
        way = 2 * step / (_TURNS - 1) - 1
        weight = math.exp(-2 * way**2)
        total.add_(_turned(spline, math.radians(way * degrees)), alpha=weight)
        weights += weight
    return truncate(total.div_(weights))


def _turned(spline: Tensor, angle: float) -> Tensor:
    """Pictures with these spline coefficients, turned; black comes in from outside."""
    count, channels, height, width = spline.shape
    rows, columns = rows_and_columns(spline)
    middle_down, middle_right = (height - 1) / 2, (width - 1) / 2
    cosine, sine = math.cos(angle), math.sin(angle)
    down = cosine * (rows - middle_down) + sine * (columns - middle_right) + middle_down
    right = cosine * (columns - middle_right) - sine * (rows - middle_down) + middle_right
    edge = 1e-4  # rounding must not push the outermost pixels out
    inside = (down > -edge) & (down < height - 1 + edge)
    inside &= (right > -edge) & (right < width - 1 + edge)
    top, left = down.floor(), right.floor()
    row, row_weight = _taps(down - top, top, height)
    column, column_weight = _taps(right - left, left, width)
    places = (row[..., None] * width + column[..., None, :]).view(-1, 16)
    weights = (row_weight * inside[..., None])[..., None] * column_weight[..., None, :]
    # One sum of sixteen coefficients per pixel, for all pictures and channels at once.
    table = spline.flatten(0, 1).flatten(1).T.contiguous()
    sums = embedding_bag(places, table, per_sample_weights=weights.view(-1, 16), mode="sum")
    return sums.T.reshape(count, channels, height, width)


def _taps(inner: Tensor, first: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The four coefficients that a value between two pixels rests on, and how much on each.

    Places beyond the ends are mirrored; the four stand on a last axis.
    """
    rest = 1 - inner
    weights = (
        rest**3 / 6,
        (4 - 6 * inner**2 + 3 * inner**3) / 6,
        (4 - 6 * rest**2 + 3 * rest**3) / 6,
        inner**3 / 6,
    )
    places = (first.long()[..., None] + torch.arange(-1, 3, device=first.device)).abs()
    # Places far outside a long narrow picture count for nothing, and must be in the table.
    mirrored = torch.where(places >= size, 2 * (size - 1) - places, places).clamp(min=0)
    return mirrored, torch.stack(weights, -1)


def _weights(places: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Places x size: how much of each coefficient the spline takes at a place."""
    matrix = np.zeros((len(places), size))
    first = np.floor(places)
    index, weight = _taps(torch.from_numpy(places - first), torch.from_numpy(first), size)
    np.add.at(matrix, (np.arange(len(places))[:, None], index.numpy()), weight.numpy())
    return matrix


@lru_cache(maxsize=16)
def _coefficients(size: int, device: torch.device) -> Tensor:
    """The matrix from values to the coefficients of the spline through them."""
    through = _weights(np.arange(size, dtype=np.float64), size)
    return torch.from_numpy(np.linalg.inv(through)).float().to(device)
