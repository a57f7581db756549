"""Things pasted over one another: stickers and geometric shapes.

Each thing knows which pixels it covers; a pixel shows the last one. So the order is found for all
pixels at once, as the largest number among the things that cover them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.draws import Draws
from stockpot.corrupt.laion.strengths import SIDE
from stockpot.corrupt.other_pictures import PROCEDURAL, other_pictures

_STICKER = 16
_SIZES = (6, 16)
_POINTS = 5


@corruptions.register("stickers", paper="arXiv:2506.16950", family="LAION-C")
def stickers(
    pixels: Tensor, constants: Constants, draws: Draws, *, tiles: str = PROCEDURAL
) -> Tensor:
    """Paste small pictures over one another at random places.

    Args:
        pixels: the pictures.
        constants: how many.
        draws: random numbers.
        tiles: what the stickers show: `procedural` patterns, or a dataset or folder.
    """
    (count,) = constants
    height, width = pixels.shape[2:]
    side = max(2, round(_STICKER * min(height, width) / SIDE))
    shown = other_pictures(tiles, side, pixels.device)
    down = draws.integers(0, height - side, (int(count),))
    right = draws.integers(0, width - side, (int(count),), 1)
    which = (draws.uniform((int(count),), 2) * len(shown)).long()
    return paste(pixels, down, right, shown[which].to(torch.uint8))


def paste(pixels: Tensor, down: Tensor, right: Tensor, pictures: Tensor) -> Tensor:
    """Paste pictures N x K x 3 x S x S with their upper left corners at these places, in order."""
    side = pictures.shape[-1]
    offset = torch.arange(side, device=pixels.device)
    rows = down[..., None, None] + offset[:, None]
    columns = right[..., None, None] + offset
    covered = torch.ones(1, dtype=torch.bool, device=pixels.device)
    last = _last(pixels, rows, columns, covered)
    return _shown(pixels, last, pictures.transpose(1, 2).flatten(2), down, right, side)


def _shown(
    pixels: Tensor, last: Tensor, pictures: Tensor, down: Tensor, right: Tensor, side: int
) -> Tensor:
    """Every pixel from the last picture that covers it, pictures N x 3 x (K side side)."""
    count, _, height, width = pixels.shape
    which = (last - 1).clamp(min=0)
    row = torch.arange(height, device=pixels.device)[:, None].expand(height, width).flatten()
    column = torch.arange(width, device=pixels.device).expand(height, width).flatten()
    inside = (row - down.gather(1, which)) * side + column - right.gather(1, which)
    place = (which * side * side + inside).clamp(min=0)
    place = torch.where(last > 0, place, 0)[:, None].expand(-1, 3, -1)
    found = pictures.gather(2, place).view(count, 3, height, width)
    return torch.where((last > 0).view(count, 1, height, width), found, pixels)


@corruptions.register("geometric_shapes", paper="arXiv:2506.16950", family="LAION-C")
def geometric_shapes(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Paste coloured triangles, squares, stars and circles over one another."""
    count = int(constants[0])
    height, width = pixels.shape[2:]
    scale = min(height, width) / SIDE
    return draw_shapes(
        pixels,
        kind=draws.integers(0, 4, (count,)),
        down=draws.integers(0, height, (count,), 1),
        right=draws.integers(0, width, (count,), 2),
        size=draws.integers(*_SIZES, (count,), 3) * scale,
        colour=draws.integers(0, 256, (count, 3), 4),
        degrees=draws.integers(0, 360, (count,), 5),
    )


def draw_shapes(
    pixels: Tensor,
    kind: Tensor,
    down: Tensor,
    right: Tensor,
    size: Tensor,
    colour: Tensor,
    degrees: Tensor,
) -> Tensor:
    """Shapes of the kinds 0 triangle, 1 square, 2 star, 3 circle, N x K each, in order.

    A star lies around its place, everything else to the right of it and below.
    """
    length = size[..., None, None].float()
    # A star reaches 1 / 1.2 of its size to each side.
    largest = float(size.max()) if size.numel() else 0.0
    back, ahead = math.ceil(largest / 1.2) + 1, math.ceil(largest) + 1
    steps = torch.arange(-back, ahead + 1, device=pixels.device)
    y, x = steps[:, None].float(), steps.float()
    inside = (x >= 0) & (y >= 0) & (x <= length) & (y <= length)
    triangle = inside & (2 * x >= y) & (2 * x <= 2 * length - y)
    circle = (x - length / 2).square() + (y - length / 2).square() <= (length / 2 + 0.5).square()
    star = _in_star(y, x, length / 1.2, degrees[..., None, None].float())
    which = kind[..., None, None]
    covered = torch.where(
        which == 0,
        triangle,
        torch.where(which == 1, inside, torch.where(which == 2, star, circle)),
    )
    rows = down[..., None, None] + steps[:, None]
    columns = right[..., None, None] + steps
    last = _last(pixels, rows, columns, covered)
    place = (last - 1).clamp(min=0)[..., None].expand(-1, -1, 3)
    found = colour.gather(1, place).to(torch.uint8).transpose(1, 2).contiguous()
    painted = (last > 0).view(len(pixels), 1, *pixels.shape[2:])
    return torch.where(painted, found.view(pixels.shape), pixels)


def _in_star(y: Tensor, x: Tensor, radius: Tensor, degrees: Tensor) -> Tensor:
    """Whether a place is in a star of five points, its inner corners at half the radius."""
    tenth = math.pi / _POINTS
    angle = torch.atan2(x, y) - torch.deg2rad(degrees)
    # All ten halves of points are alike: fold the angle into the first, 0 at the tip.
    folded = (angle.remainder(2 * tenth) - tenth).abs()
    folded = tenth - folded
    along, aside = folded.cos(), folded.sin()
    apart = (x.square() + y.square()).sqrt()
    # The edge from the tip (radius, 0) to the inner corner at half the radius and a tenth around.
    corner_along, corner_aside = 0.5 * math.cos(tenth), 0.5 * math.sin(tenth)
    # Pillow paints the pixels on the outline too: a third of a pixel more all around.
    edge = radius * corner_aside + 0.3 * math.hypot(corner_aside, 1 - corner_along)
    return apart * (along * corner_aside - aside * (corner_along - 1)) <= edge


def _last(pixels: Tensor, rows: Tensor, columns: Tensor, covered: Tensor) -> Tensor:
    """For every pixel the number, from 1, of the last thing that covers it, or 0.

    Args:
        pixels: of which size.
        rows: of the box of each thing, N x K x S x 1.
        columns: of it, N x K x 1 x S.
        covered: which pixels of its box a thing covers, N x K x S x S or fewer.
    """
    count, _, height, width = pixels.shape
    seen = covered & (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    place = rows.clamp(0, height - 1) * width + columns.clamp(0, width - 1)
    number = torch.arange(1, rows.shape[1] + 1, device=pixels.device)[:, None, None] * seen
    last = torch.zeros(count, height * width, dtype=torch.int64, device=pixels.device)
    return last.scatter_reduce_(1, place.flatten(1).long(), number.flatten(1), "amax")
