"""The picture drawn with vertical lines that lean to the left where it is dark."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.draws import Draws
from stockpot.corrupt.laion.strengths import SIDE

_LEAN = 40


@corruptions.register("vertical_lines", paper="arXiv:2506.16950", family="LAION-C")
def vertical_lines(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Redraw the picture with lines on black: the darker a place, the further left they run."""
    lines, step = constants
    scale = min(pixels.shape[2:]) / SIDE
    count = max(1, round(lines * pixels.shape[3] / SIDE))
    return draw_lines(pixels, count, max(1, round(step * scale)), _LEAN * scale)


def draw_lines(pixels: Tensor, lines: int, step: int, lean: float) -> Tensor:
    """Draw with so many lines of pieces `step` px long; black places lean so many pixels.

    A piece has the mean colour of the block it stands for and runs from where the last one ended.
    Later pieces and lines cover earlier ones.
    """
    count, _, height, width = pixels.shape
    # On the CPU, and by a tensor below: a GPU would multiply by the reciprocal of a number, and the
    # last bit decides between two pixels.
    at = (torch.arange(lines, dtype=torch.float64) / lines * width).to(pixels.device)
    left, end = at.long(), (at + width / lines).long().clamp(max=width)
    # A line between two columns has no block of its own and is black.
    top = torch.arange(0, height, step, device=pixels.device)
    bottom = (top + step).clamp(max=height)
    area = (bottom - top)[:, None] * (end - left)
    colour = _block_means(pixels.long(), top, bottom, left, end, area)
    light = _block_means(_grey(pixels), top, bottom, left, end, area)
    ends = at - lean * (1 - light[:, 0].double() / at.new_tensor(255.0))
    ends = torch.where(area > 0, ends, at - lean)
    # Pieces N x rows x lines: from the end before, at first from the line's own place.
    starts = torch.cat([at.expand(count, 1, -1), ends[:, :-1]], 1).trunc().long()
    stops = ends.trunc().long()
    above = torch.cat([top[:1], top[:-1]])
    return _trace(pixels, starts, stops, above, top, colour)


def _trace(
    pixels: Tensor, starts: Tensor, stops: Tensor, above: Tensor, below: Tensor, colour: Tensor
) -> Tensor:
    """Draw the pieces by Bresenham's rule, written out: each of its points at once."""
    count, _, height, width = pixels.shape
    _, pieces, lines = starts.shape
    across, down = stops - starts, (below - above)[:, None].expand(pieces, lines)
    far, tall = across.abs(), down.expand_as(across)
    longer = torch.maximum(far, tall)
    steps = torch.arange(int(longer.max()) + 1, device=pixels.device)
    flat = (far > tall)[..., None]
    span = longer.clamp(min=1)[..., None]
    other = (2 * steps * torch.minimum(far, tall)[..., None] + span) // (2 * span)
    x = starts[..., None] + across.sign()[..., None] * torch.where(flat, steps, other)
    y = above[:, None, None] + torch.where(flat, other, steps)
    seen = (steps <= longer[..., None]) & (x >= 0) & (x < width) & (y < height)
    # Line by line from the left, within a line from the top.
    order = torch.arange(lines, device=pixels.device) * pieces
    number = order + torch.arange(pieces, device=pixels.device)[:, None] + 1
    place = y.clamp(0, height - 1) * width + x.clamp(0, width - 1)
    last = torch.zeros(count, height * width, dtype=torch.int64, device=pixels.device)
    numbers = (number[..., None] * seen).flatten(1)
    last.scatter_reduce_(1, place.flatten(1), numbers, "amax")
    flat_colour = colour.transpose(2, 3).flatten(2)
    which = (last - 1).clamp(min=0)[:, None].expand(-1, 3, -1)
    drawn = flat_colour.gather(2, which) * (last > 0)[:, None]
    return drawn.view(pixels.shape).to(torch.uint8)


def _block_means(
    values: Tensor, top: Tensor, bottom: Tensor, left: Tensor, end: Tensor, area: Tensor
) -> Tensor:
    """Whole means over blocks of whole numbers N x C x H x W, 0 where a block is empty."""
    sums = torch.nn.functional.pad(values.cumsum(2).cumsum(3), (1, 0, 1, 0))
    rows = sums[:, :, bottom] - sums[:, :, top]
    return (rows[..., end] - rows[..., left]) // area.clamp(min=1)


def _grey(pixels: Tensor) -> Tensor:
    """The grey of Pillow, N x 1 x H x W."""
    red, green, blue = pixels.long().unbind(1)
    return ((19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16)[:, None]
