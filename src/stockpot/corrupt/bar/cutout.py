"""Parts painted grey: squares of a turned checkerboard, and lines."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.bar.places import CIRCLE, per_picture, rows_and_columns, side_of
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.draws import Draws

_GREY = 128
_SQUARES = 40  # a side: more than the smallest squares need


@corruptions.register("checkerboard_cutout", paper="arXiv:2102.11273", family="ImageNet-C-bar")
def checkerboard_cutout(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Paint some of the black squares of a turned checkerboard grey."""
    (strength,) = constants
    share = draws.uniform((2,))
    square = ((0.1 + 0.15 * share[:, 1]) * side_of(pixels)).clamp(min=1)
    chosen = draws.uniform((_SQUARES, _SQUARES), 1) < strength / 10
    return cut_squares(pixels, share[:, 0] * CIRCLE, square, chosen)


def cut_squares(pixels: Tensor, angle: Tensor, square: Tensor, chosen: Tensor) -> Tensor:
    """Paint squares grey: of a board with this angle and size, the chosen ones, N x K x K."""
    rows, columns = rows_and_columns(pixels)
    cosine, sine = per_picture(angle.cos()), per_picture(angle.sin())
    first = (cosine * rows + sine * columns) / per_picture(square)
    second = (cosine * columns - sine * rows) / per_picture(square)
    dark = first.remainder(2).int() == second.remainder(2).int()
    # Quirk kept: numbers are cut towards zero, so the squares at the axes share a draw.
    count = chosen.shape[1]
    place = first.long().remainder(count) * count + second.long().remainder(count)
    hit = dark & chosen.flatten(1).gather(1, place.flatten(1)).view_as(dark)
    return pixels.masked_fill(hit[:, None], _GREY)


@corruptions.register("lines", paper="arXiv:2102.11273", family="CIFAR-10-C-bar")
def lines(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Draw grey lines across the picture, in nearly one direction or in all."""
    (strength,) = constants
    height, width = pixels.shape[2:]
    side = side_of(pixels)
    count = max(1, int(strength / 10 * side))
    share, each = draws.uniform((2,)), draws.uniform((count, 3), 1)
    spread = CIRCLE * (0.1 + 0.9 * share[:, 1:2])
    angle = share[:, :1] * CIRCLE + spread * (each[..., 2] - 0.5)
    middle = torch.stack([each[..., 0] * height, each[..., 1] * width], 2)
    reach = torch.stack([angle.cos(), angle.sin()], 2) * side
    return draw_lines(pixels, (middle - reach).trunc(), (middle + reach).trunc())


def draw_lines(pixels: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
    """Lines of one pixel between places N x K x 2 (row, column), with soft edges.

    A pixel takes grey by one minus its distance from the line, which is what drawing with
    antialiasing comes to. Each line is drawn on what the one before it left, in whole levels.
    """
    rows, columns = rows_and_columns(pixels)
    values = pixels.float()
    for one in range(starts.shape[1]):
        start, way = starts[:, one], ends[:, one] - starts[:, one]
        length = way.norm(dim=1).clamp(min=1)
        along = way / length[:, None]
        down, right = rows - per_picture(start[:, 0]), columns - per_picture(start[:, 1])
        step_down, step_right = per_picture(along[:, 0]), per_picture(along[:, 1])
        travelled = down * step_down + right * step_right
        aside = (down * step_right - right * step_down).abs()
        on = (travelled >= 0) & (travelled <= per_picture(length))
        cover = ((1 - aside).clamp_(min=0) * on)[:, None]
        values = (values + cover * (_GREY - values)).floor_()
    return values.to(torch.uint8)
