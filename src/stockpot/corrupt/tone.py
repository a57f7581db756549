"""Tone: brightness, contrast and saturation.

The HSV round trips of brightness and saturation are written in closed form: changing V scales a
pixel's three values by one factor, changing S scales their distances from the largest.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.draws import Draws
from stockpot.corrupt.levels import constant, truncate


@corruptions.register("brightness", paper="arXiv:1903.12261", group="weather", benchmark=True)
def brightness(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Raise the HSV value by a constant, as daylight does."""
    (shift,) = constants
    values = pixels.float()
    value = values.amax(1, keepdim=True)
    raised = (value + 255 * shift).clamp_(max=255)
    # Black has no hue: it becomes grey. Elsewhere the channels keep their proportions.
    scaled = values * (raised / value.clamp(min=1))
    return truncate(scaled.add_(raised.mul_(value == 0)))


@corruptions.register("contrast", paper="arXiv:1903.12261", group="digital", benchmark=True)
def contrast(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Draw all values towards their channel's mean."""
    (factor,) = constants
    values = pixels.float()
    means = values.mean((2, 3), keepdim=True)
    return truncate(values.mul_(factor).add_(means * (1 - factor)))


@corruptions.register("saturate", paper="arXiv:1903.12261", group="digital", benchmark=False)
def saturate(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Scale and shift the HSV saturation: towards grey at severities 1 and 2, garish from 3 on."""
    factor, shift = constants
    values = pixels.float()
    value = values.amax(1, keepdim=True)
    chroma = value - values.amin(1, keepdim=True)
    saturation = chroma / value.clamp(min=1)
    target = (saturation * factor + shift).clamp_(0, 1)
    # Each distance from the largest channel grows as the saturation does.
    growth = target * value / chroma.clamp(min=1)
    coloured = value - (value - values) * growth
    # Quirk kept: a grey pixel counts as hue 0, so a shift of its saturation turns it red.
    reddened = value * (1 - target * constant((0.0, 1.0, 1.0), pixels.device))
    return truncate(torch.where(chroma > 0, coloured, reddened))
