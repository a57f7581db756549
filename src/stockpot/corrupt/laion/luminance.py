"""Squares of a checkerboard, lighter and darker in turn."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.draws import Draws
from stockpot.corrupt.laion.strengths import SIDE
from stockpot.corrupt.levels import truncate

_SQUARE = 14


@corruptions.register("luminance_checkerboard", paper="arXiv:2506.16950", family="LAION-C")
def luminance_checkerboard(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Make the squares of a checkerboard lighter and darker in turn, each by another amount."""
    low, high = constants
    height, width = pixels.shape[2:]
    side = max(2, round(_SQUARE * min(height, width) / SIDE))
    share = draws.uniform((-(-height // side), -(-width // side)))
    return light_squares(pixels, low + (high - low) * share, side)


def light_squares(pixels: Tensor, amounts: Tensor, side: int) -> Tensor:
    """Add amounts N x R x C to squares of this side, with alternating signs."""
    rows = torch.arange(pixels.shape[2], device=pixels.device) // side
    columns = torch.arange(pixels.shape[3], device=pixels.device) // side
    sign = 1 - 2 * ((rows[:, None] + columns) % 2)
    changed = amounts[:, rows][:, :, columns] * sign
    return truncate(pixels.float().add_(changed[:, None]))
