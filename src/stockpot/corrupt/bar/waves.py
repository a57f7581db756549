"""Patterns of sines: one frequency, rings around a point, and plasma."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.bar.places import (
    CIRCLE,
    on_every_pixel,
    per_picture,
    rows_and_columns,
    side_of,
)
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.draws import Draws
from stockpot.corrupt.levels import truncate

_ROUNDS = 6  # of the plasma, at most


@corruptions.register(
    "single_frequency_greyscale", paper="arXiv:2102.11273", family="ImageNet-C-bar"
)
def single_frequency_greyscale(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Add one sine wave of random direction and length, alike in all channels."""
    (strength,) = constants
    share = draws.uniform((4,))
    larger = (share[:, 0] - 0.5) * CIRCLE
    smaller = (2 * share[:, 1] - 1) * larger
    swapped = share[:, 2] < 0.5
    across, down = torch.where(swapped, smaller, larger), torch.where(swapped, larger, smaller)
    return wave(pixels, across, down, share[:, 3] * CIRCLE, 19.6 * strength)


def wave(pixels: Tensor, across: Tensor, down: Tensor, phase: Tensor, amount: float) -> Tensor:
    """Pixels plus a sine wave; frequencies and phase per picture."""
    rows, columns = rows_and_columns(pixels)
    angle = columns * per_picture(across) + rows * per_picture(down) + per_picture(phase)
    return truncate(pixels.float().add_(angle.sin_()[:, None], alpha=amount))


@corruptions.register("cocentric_sine_waves", paper="arXiv:2102.11273", family="ImageNet-C-bar")
def cocentric_sine_waves(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Add wavy rings around a random point."""
    (strength,) = constants
    share, side = draws.uniform((5,)), side_of(pixels)
    height, width = pixels.shape[2:]
    return rings(
        pixels,
        centre=(share[:, 0] * width, share[:, 1] * height),
        waves=share[:, 2] * 10,
        swing=share[:, 3] * (side / 10),
        ring=share[:, 4] * (side / 10),
        amount=12.8 * strength,
    )


def rings(
    pixels: Tensor,
    centre: tuple[Tensor, Tensor],
    waves: Tensor,
    swing: Tensor,
    ring: Tensor,
    amount: float,
) -> Tensor:
    """Pixels plus a saw tooth of the distance from a centre (column, row) that swings."""
    rows, columns = rows_and_columns(pixels)
    right, down = columns - per_picture(centre[0]), rows - per_picture(centre[1])
    angle = torch.atan2(right, down) * per_picture(waves)
    distance = (right.square() + down.square()).sqrt() + angle.sin() * per_picture(swing)
    width = per_picture(ring).clamp(min=1e-6)
    tooth = distance.remainder(width) / width - 0.5
    return truncate(pixels.float().add_(tooth[:, None], alpha=amount))


@corruptions.register("plasma_noise", paper="arXiv:2102.11273", family="ImageNet-C-bar")
def plasma_noise(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Blend the picture with coloured plasma."""
    (strength,) = constants
    share = draws.uniform((3,))
    return plasma(
        pixels,
        time=share[:, 0] * (3 * CIRCLE),
        rounds=draws.integers(4, 7, (1,), 1)[:, 0],
        sharpness=0.5 + share[:, 1] / 2,
        scale=(0.075 + 0.125 * share[:, 2]) * side_of(pixels),
        amount=6.4 * strength,
    )


def plasma(
    pixels: Tensor, time: Tensor, rounds: Tensor, sharpness: Tensor, scale: Tensor, amount: float
) -> Tensor:
    """Blend with plasma: places that wander with sines of one another, some rounds long."""
    rows, columns = rows_and_columns(pixels)
    when, size = per_picture(time), per_picture(scale)
    down, right = on_every_pixel(rows / size, columns / size)
    finer, later, weaker = 1.0, 1.0, torch.ones_like(when)
    for step in range(_ROUNDS):
        going = (per_picture(rounds) > step).float()
        first = torch.cos(down * finer + when / later) / weaker
        second = torch.sin(right * finer + when / later) / weaker
        # Both at once: the second uses the first as it has just become.
        first, second = first - 0.3 * second, second + 0.3 * first
        right, down = right + first * going, down + second * going
        finer, later, weaker = finer * 1.93, later * 1.15, weaker * (2.25 - per_picture(sharpness))
    red, blue = torch.sin(right - when), torch.sin(down + when)
    green = torch.sin((right + down + when.sin()) / 2)
    noise = torch.stack([red, green, blue], 1)
    return truncate(pixels.float().mul_(1 - amount / 255).add_(noise, alpha=amount))
