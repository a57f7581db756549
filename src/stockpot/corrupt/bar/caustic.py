"""Refraction through moving water."""

from __future__ import annotations

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
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.draws import Draws
from stockpot.corrupt.levels import truncate
from stockpot.corrupt.separable import smooth

_INDEX = 4.0  # of refraction
_LIGHT = 0.005
_FAR = 250.0  # the pattern is evaluated this far from its origin
_ROUNDS = 5
_FLAT = 1e-3  # a surface this close to level does not refract


@corruptions.register("caustic_refraction", paper="arXiv:2102.11273", family="ImageNet-C-bar")
def caustic_refraction(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Look at the picture through a surface of caustics, which bends and lights it."""
    (strength,) = constants
    share, side = draws.uniform((2,)), side_of(pixels)
    light = caustics(pixels, 0.5 + 1.5 * share[:, 0], (0.75 + share[:, 1] / 2) * side)
    return refract(pixels, light, 0.05 * side * strength, 0.2 * strength)


def caustics(pixels: Tensor, time: Tensor, size: Tensor) -> Tensor:
    """The light that water throws, N x H x W, smoothed."""
    rows, columns = rows_and_columns(pixels)
    down, right = (
        (place / per_picture(size)).remainder(1) * CIRCLE - _FAR for place in (rows, columns)
    )
    down, right = on_every_pixel(down, right)
    # Sines of numbers near zero are exact; forty circles bring the places there.
    near_down, near_right = down + 40 * CIRCLE, right + 40 * CIRCLE
    first, second = near_down, near_right
    light = torch.ones_like(down)
    for step in range(1, _ROUNDS + 1):
        when = per_picture(time) * (1 - 3.5 / step)
        first, second = (
            near_down + torch.cos(when - first) + torch.sin(when + second),
            near_right + torch.sin(when - second) + torch.cos(when + first),
        )
        length = torch.hypot(
            down * _LIGHT / torch.sin(first + when), right * _LIGHT / torch.cos(second + when)
        )
        light = light + 1 / length
    light = 1.17 - (light / _ROUNDS) ** 1.4
    return smooth(light.abs().pow(8).clamp_(0, 1), 1.0, border="reflect")


def refract(pixels: Tensor, surface: Tensor, reach: float, lighting: float) -> Tensor:
    """Bend and light pictures as a surface N x H x W does.

    A ray from above meets a surface of normal n. Behind it, it lies in the plane of both, and its
    part across is n's times `sqrt(1 - h^2 / index^2) - n_z / index`, with h the length of n's part
    across: Snell's law, written out.
    """
    padded = torch.nn.functional.pad(surface, (1, 1, 1, 1))
    slope_down = padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]
    slope_right = padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]
    upright = (slope_down.square() + slope_right.square() + 1).rsqrt()
    across = (1 - upright.square()).clamp(min=0)
    bent = (1 - across / _INDEX**2).sqrt() - upright / _INDEX
    bent = torch.where(upright >= 1 - _FLAT, 0, bent) * upright * reach
    rows, columns = rows_and_columns(pixels)
    seen = sample(pixels.float(), rows + slope_down * bent, columns + slope_right * bent)
    return truncate(seen.add_((slope_down - slope_right)[:, None], alpha=255 * lighting))
