"""Glitches: strips that have slipped, one colour out of place, and scan lines."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.draws import Draws
from stockpot.corrupt.laion.strengths import SIDE


@corruptions.register("glitched", paper="arXiv:2506.16950", family="LAION-C")
def glitched(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Shift strips sideways, move one colour, and black out every other row."""
    (level,) = constants
    height, width = pixels.shape[2:]
    strips = int(2 * level)
    largest = max(1, int(level**2 / 100 * width))
    reach = max(1, round(strips * min(height, width) / SIDE))
    tallest = max(1, height // 4)
    start = draws.integers(0, height + 1, (strips,))
    moved = draws.integers(-reach, reach + 1, (2,), 4)
    return glitch(
        pixels,
        start=start,
        stop=start + draws.integers(1, tallest + 1, (strips,), 1),
        shift=draws.integers(-largest, largest + 1, (strips,), 2),
        channel=draws.integers(0, 3, (1,), 3)[:, 0],
        down=moved[:, 0],
        right=moved[:, 1],
    )


def glitch(
    pixels: Tensor,
    start: Tensor,
    stop: Tensor,
    shift: Tensor,
    channel: Tensor,
    down: Tensor,
    right: Tensor,
) -> Tensor:
    """Strips N x K of rows from `start` to `stop` slip to the right, later ones win; then a colour.

    Quirk kept: the colour moves down as a whole, but only its first row moves to the right.
    """
    count, _, height, width = pixels.shape
    rows = torch.arange(height, device=pixels.device)
    slipped = torch.zeros(count, height, dtype=torch.int64, device=pixels.device)
    for strip in range(shift.shape[1]):
        here = (rows >= start[:, strip, None]) & (rows < stop[:, strip, None])
        here &= shift[:, strip, None] != 0
        slipped = torch.where(here, shift[:, strip, None].long(), slipped)
    columns = torch.arange(width, device=pixels.device)
    source = (columns - slipped[..., None]) % width
    result = pixels.gather(3, source[:, None].expand(-1, 3, -1, -1))
    colour = pixels.gather(1, channel.long().view(-1, 1, 1, 1).expand(-1, 1, height, width))[:, 0]
    from_row = (rows - down[:, None]) % height
    first = (from_row == 0)[..., None] * right[:, None, None]
    source = from_row[..., None].long() * width + (columns - first) % width
    colour = colour.flatten(1).gather(1, source.flatten(1)).view(count, height, width)
    mine = torch.arange(3, device=pixels.device) == channel[:, None]
    result = torch.where(mine[..., None, None], colour[:, None], result)
    return result * (rows % 2).to(torch.uint8)[:, None]
