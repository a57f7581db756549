"""Pictures moved, turned, tilted and scaled, as one map for a whole batch; black comes in."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

Matrix = NDArray[np.float64]


def turn(degrees: float) -> Matrix:
    """From a place in the turned picture to its source; both from the centre, to the right first.

    Positive degrees turn clockwise.
    """
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return np.array([[cosine, sine, 0], [-sine, cosine, 0], [0, 0, 1]])


def enlarge(factor: float) -> Matrix:
    """The same for a picture made larger about its centre."""
    return np.diag([1 / factor, 1 / factor, 1.0])


def tilt(degrees: float, focal: float) -> Matrix:
    """The same for a picture turned about its two axes in space and seen from `focal` away."""
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    about_x = np.array([[1, 0, 0], [0, cosine, -sine], [0, sine, cosine]])
    about_y = np.array([[cosine, 0, -sine], [0, 1, 0], [sine, 0, cosine]])
    away = np.array([[focal, 0, 0], [0, focal, 0], [0, 0, 1]])
    placed = about_x @ about_y
    forward = away @ placed
    forward[2, 2] += focal
    return np.asarray(np.linalg.inv(forward))


def view(canvas: Tensor, side: tuple[int, int], matrix: Matrix, *, corner: bool = False) -> Tensor:
    """The middle of canvases, N x C x H x W floats, as the map shows it, between pixels.

    Args:
        canvas: what may be seen; black beyond it.
        side: height and width of the result.
        matrix: from places in the result to places on the canvas.
        corner: whether pixels count from the middle of the canvas to their corner and fade into
            the black around it, as OpenCV has it, rather than to their centre and end sharply,
            as Pillow has it.
    """
    height, width = canvas.shape[2:]
    half = 0.0 if corner else 0.5
    down, right = (torch.arange(length, dtype=torch.float64) + half - length / 2 for length in side)
    places = torch.stack(
        [right.expand(side[0], -1), down[:, None].expand(-1, side[1]), torch.ones(side)], -1
    )
    mapped = places.double() @ torch.from_numpy(matrix).T
    x = mapped[..., 0] / mapped[..., 2] + width / 2 - half
    y = mapped[..., 1] / mapped[..., 2] + height / 2 - half
    grid = torch.stack([2 * x / max(width - 1, 1) - 1, 2 * y / max(height - 1, 1) - 1], -1)
    grid = grid.float().to(canvas.device).expand(len(canvas), -1, -1, -1)
    if corner:
        return F.grid_sample(canvas, grid, padding_mode="zeros", align_corners=True)
    inside = (x >= -half) & (x < width - half) & (y >= -half) & (y < height - half)
    seen = F.grid_sample(canvas, grid, padding_mode="border", align_corners=True)
    return seen * inside.to(canvas.device)


def middle(canvas: Tensor, side: tuple[int, int], right: int = 0) -> Tensor:
    """The middle of canvases, moved to the right by whole pixels; black beyond."""
    height, width = canvas.shape[2:]
    top, left = round((height - side[0]) / 2), round((width - side[1]) / 2) - right
    before, after = max(0, -left), max(0, left + side[1] - width)
    padded = F.pad(canvas, (before, after))
    return padded[..., top : top + side[0], left + before : left + before + side[1]]
