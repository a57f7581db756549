"""Sparkles: points that shine in rays, and the dark that surrounds one."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.bar.places import CIRCLE, per_picture, rows_and_columns, side_of
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.draws import Draws
from stockpot.corrupt.levels import truncate

_SPARKLES = 5
_RAYS = (50, 200)
_UNEVEN = 0.25  # deviation of the lengths of rays


@corruptions.register("sparkles", paper="arXiv:2102.11273", family="ImageNet-C-bar")
def sparkles(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Let five points shine, each in rays of uneven length."""
    (strength,) = constants
    places = draws.uniform((_SPARKLES, 2))
    rays = draws.integers(*_RAYS, (_SPARKLES,), 1)
    uneven = draws.normal((_SPARKLES, _RAYS[1]), 2)
    radius = 0.01 * strength * side_of(pixels)
    lengths = (radius * (1 + _UNEVEN * uneven)).clamp(min=1)
    values = pixels.float()
    height, width = pixels.shape[2:]
    for one in range(_SPARKLES):
        centre = (places[:, one, 0] * height, places[:, one, 1] * width)
        values = whiten(values, shine(values, centre, rays[:, one], lengths[:, one], 1.0))
    return truncate(values)


@corruptions.register("inverse_sparkles", paper="arXiv:2102.11273", family="ImageNet-C-bar")
def inverse_sparkles(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Keep the surroundings of one point and let the rest go white, ray by ray."""
    (strength,) = constants
    places = 0.25 + draws.uniform((2,)) / 2
    rays = draws.integers(*_RAYS, (1,), 1)[:, 0]
    lengths = 0.25 * side_of(pixels) * (1 + _UNEVEN * draws.normal((_RAYS[1],), 2))
    height, width = pixels.shape[2:]
    centre = (places[:, 0] * height, places[:, 1] * width)
    kept = shine(pixels, centre, rays, lengths, 0.13 * strength)
    return truncate(whiten(pixels.float(), 1 - kept))


def shine(
    pixels: Tensor, centre: tuple[Tensor, Tensor], rays: Tensor, lengths: Tensor, power: float
) -> Tensor:
    """How brightly rays from a centre (row, column) shine, N x H x W, 0 to 1.

    Args:
        pixels: of which size.
        centre: of each picture.
        rays: how many each picture has.
        lengths: of the rays, N x at least so many; between two rays they are blended.
        power: how fast the light falls with the distance.
    """
    rows, columns = rows_and_columns(pixels)
    down, right = rows - per_picture(centre[0]), columns - per_picture(centre[1])
    many = per_picture(rays).long()
    turn = (torch.atan2(right, down) / CIRCLE + 0.5) * many
    ray = turn.floor()
    beside = turn - ray
    here, next_one = ray.long() % many, (ray.long() + 1) % many
    first = lengths.gather(1, here.flatten(1)).view_as(turn)
    second = lengths.gather(1, next_one.flatten(1)).view_as(turn)
    length = first + beside * (second - first)
    light = length.square() / (down.square() + right.square() + 1e-4)
    return ((1 - (beside - 0.5).square()) * light**power).clamp_(0, 1)


def whiten(values: Tensor, share: Tensor) -> Tensor:
    """Values on their way to white, as far as N x H x W says."""
    return values + share[:, None] * (255 - values)
