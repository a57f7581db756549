"""Warps: pinched and twirled tiles, and ripples."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.bar.places import (
    CIRCLE,
    on_every_pixel,
    per_picture,
    rows_and_columns,
    sample,
    side_of,
)
from stockpot.corrupt.constants import NATIVE_SIDE, Constants
from stockpot.corrupt.draws import Draws
from stockpot.corrupt.levels import truncate


@corruptions.register("pinch_and_twirl", paper="arXiv:2102.11273", family="CIFAR-10-C-bar")
def pinch_and_twirl(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Pinch and twirl the picture in tiles, each one way or the other."""
    (strength,) = constants
    tiles = 5 if side_of(pixels) >= NATIVE_SIDE["imagenet"] else 3
    signs = 1 - 2 * (draws.bits(tiles * tiles) & 1).view(-1, tiles, tiles)
    return twirl(pixels, signs * (strength * math.pi / 20), 0.04 * strength + 0.1)


def twirl(pixels: Tensor, angles: Tensor, pinch: float) -> Tensor:
    """Twirl each tile about its centre by angles N x K x K (columns, then rows), and pinch it."""
    rows, columns = rows_and_columns(pixels)
    tiles = angles.shape[1]
    tall, wide = (length // tiles for length in pixels.shape[2:])
    radius = min(tall, wide) / 2
    row, column = rows // tall, columns // wide
    down, right = on_every_pixel(rows - row * tall - tall / 2, columns - column * wide - wide / 2)
    apart = (down.square() + right.square()).sqrt()
    # What is left over beyond the last whole tile stays as it is.
    inside = (apart <= radius) & (apart >= 5e-4) & (row < tiles) & (column < tiles)
    place = (column.clamp(max=tiles - 1) * tiles + row.clamp(max=tiles - 1)).long()
    share = (apart / radius).clamp(1e-6, 1)
    turn = angles.flatten(1)[:, place] * (1 - share).square()
    out = torch.sin(share * (math.pi / 2)).pow(-pinch)
    new_down = out * (down * turn.cos() - right * turn.sin()) - down
    new_right = out * (down * turn.sin() + right * turn.cos()) - right
    moved = sample(pixels.float(), rows + new_down * inside, columns + new_right * inside)
    return truncate(moved)


@corruptions.register("ripple", paper="arXiv:2102.11273", family="CIFAR-10-C-bar")
def ripple(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Move rows and columns to and fro, as waves on water do."""
    (strength,) = constants
    share, side = draws.uniform((2, 2)), side_of(pixels)
    waves, phases = (0.1 + 0.2 * share[:, 0]) * side, share[:, 1] * CIRCLE
    return sway(pixels, waves, phases, 0.0025 * strength * side)


def sway(pixels: Tensor, waves: Tensor, phases: Tensor, swing: float) -> Tensor:
    """Move rows, then columns, by sines of lengths and phases N x 2."""
    rows, columns = rows_and_columns(pixels)
    down = rows + swing * torch.sin(
        CIRCLE * rows / per_picture(waves[:, 0]) + per_picture(phases[:, 0])
    )
    right = columns + swing * torch.sin(
        CIRCLE * columns / per_picture(waves[:, 1]) + per_picture(phases[:, 1])
    )
    return truncate(sample(pixels.float(), *on_every_pixel(down, right)))
