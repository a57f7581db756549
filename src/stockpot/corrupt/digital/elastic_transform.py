"""Elastic: a random affine warp followed by a smooth random displacement of every pixel."""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.draws import Draws
from stockpot.corrupt.fused.kernel import Kernel
from stockpot.corrupt.levels import truncate
from stockpot.corrupt.separable import smooth

_GRID, _DISPLACED = Kernel("grids:affine"), Kernel("grids:displaced")

# OpenCV 4 reads a warped picture on a grid of 1/32 pixel, found in steps of 1/1024.
_FINE, _COARSE = 1024, 32


@corruptions.register(
    "elastic_transform", paper="arXiv:1903.12261", group="digital", benchmark=True
)
def elastic_transform(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Stretch and shear the picture, then move its pixels about smoothly."""
    corners = draws.uniform((3, 2)) * 2 - 1
    shifts = draws.uniform((2, *pixels.shape[2:]), stream=1) * 2 - 1
    return displace(pixels, constants, corners, shifts)


def displace(pixels: Tensor, constants: Constants, corners: Tensor, shifts: Tensor) -> Tensor:
    """Elastic transform from given fields.

    Args:
        pixels: uint8, N x 3 x H x W.
        constants: displacement, sigma and corner shift, as shares of the shorter side.
        corners: N x 3 x 2 in [-1, 1), how far (x, y) each corner of the affine triangle moves.
        shifts: N x 2 x H x W in [-1, 1), right and down, before smoothing.
    """
    side = min(pixels.shape[2:])
    amount, sigma, corner_shift = (constant * side for constant in constants)
    warped = _affine(pixels.float(), corners * corner_shift)
    if amount == 0:
        return truncate(warped)
    shifts = smooth(shifts, sigma, truncate=3.0, border="reflect")
    units = (_unit_of(side) for side in reversed(pixels.shape[2:]))
    grid = _DISPLACED(
        lambda: _displaced(shifts, amount), pixels.device, shifts, float(amount), *units
    )
    return truncate(F.grid_sample(warped, grid, padding_mode="border", align_corners=True))


def _displaced(shifts: Tensor, amount: float) -> Tensor:
    """Where every pixel is read, N x H x W x 2."""
    shifts = shifts * amount
    height, width = shifts.shape[2:]
    column = torch.arange(width, device=shifts.device) + shifts[:, 0]
    row = torch.arange(height, device=shifts.device)[:, None] + shifts[:, 1]
    return torch.stack([_unit(_fold(column, width), width), _unit(_fold(row, height), height)], -1)


@lru_cache(maxsize=16)
def _triangle(height: int, width: int, device: torch.device) -> Tensor:
    """Three corners of the square in the middle that the affine map moves, as (x, y)."""
    x, y, arm = width // 2, height // 2, min(height, width) // 3
    corners = [[x + arm, y + arm], [x + arm, y - arm], [x - arm, y - arm]]
    return torch.tensor(corners, dtype=torch.float32, device=device)


def _fold(place: Tensor, size: int) -> Tensor:
    """Bring places outside back in, as scipy did when the benchmark was made.

    Its "reflect" mirrors with the edge pixel doubled, but within the one pixel next to the edge it
    reads 1 + place (before the first) and 2 (size - 1) - place (after the last), which is neither
    of its modes. That quirk moves single values in the outermost rows by dozens of levels.
    """
    last = size - 1
    place = torch.where(place < 0, (place + 1).abs(), place)
    return torch.where(place > last, (2 * last - place) + (place >= size), place)


def _unit(place: Tensor, size: int) -> Tensor:
    """Pixel numbers to the range -1 (first pixel) to 1 (last pixel)."""
    return place * _unit_of(size) - 1


def _unit_of(size: int) -> float:
    return 2 / (size - 1)


@lru_cache(maxsize=16)
def _units(height: int, width: int, device: torch.device) -> Tensor:
    return torch.tensor([_unit_of(width), _unit_of(height)], dtype=torch.float64, device=device)


def _affine(images: Tensor, moved: Tensor) -> Tensor:
    """Warp so that three points of the middle move by `moved`; outside is mirrored."""
    height, width = images.shape[2:]
    device = images.device
    before = _triangle(height, width, device)
    after = (before + moved.float()).double()
    # The inverse map takes a pixel of the result to where it is read: solve A [after, 1] = before.
    # The triangle is right-angled at its second corner, so two edge vectors suffice.
    edges = torch.stack([after[:, 0] - after[:, 1], after[:, 2] - after[:, 1]], -1)
    (a, b), (c, d) = edges.unbind(1)[0].unbind(1), edges.unbind(1)[1].unbind(1)
    determinant = a * d - b * c
    inverse = torch.stack([torch.stack([d, -b], -1), torch.stack([-c, a], -1)], 1)
    inverse = inverse / determinant[:, None, None]
    target = before.double()
    wanted = torch.stack([target[0] - target[1], target[2] - target[1]], -1)
    linear = wanted @ inverse
    constant = target[1] - (linear @ after[:, 1, :, None])[..., 0]

    columns = torch.arange(width, dtype=torch.float64, device=device)
    rows = torch.arange(height, dtype=torch.float64, device=device)
    # Fixed point as in OpenCV: the parts from x and from y are rounded by themselves.
    from_x = (linear[:, :, :1] * columns * _FINE).round()
    from_y = ((linear[:, :, 1:] * rows + constant[:, :, None]) * _FINE).round()
    grid = _GRID(
        lambda: _grid(from_x, from_y), device, from_x, from_y, _units(height, width, device)
    )
    return F.grid_sample(images, grid, padding_mode="reflection", align_corners=True)


def _grid(from_x: Tensor, from_y: Tensor) -> Tensor:
    """Where the warped picture is read, N x H x W x 2, from both parts in 1/1024 pixel."""
    height, width = from_y.shape[2], from_x.shape[2]
    fine = from_x[:, :, None, :] + from_y[:, :, :, None] + _FINE // _COARSE // 2
    place = (fine / (_FINE // _COARSE)).floor_() / _COARSE
    return torch.stack([_unit(place[:, 0], width), _unit(place[:, 1], height)], -1).float()
