"""Noise with a given spectrum: blue noise as a mask, and nearly brown noise."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.bar.places import CIRCLE, rows_and_columns
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.draws import Draws
from stockpot.corrupt.levels import truncate


@corruptions.register("blue_noise_sample", paper="arXiv:2102.11273", family="ImageNet-C-bar")
def blue_noise_sample(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Keep only the pixels that a mask of blue noise lets through; the others are black."""
    (strength,) = constants
    half = draws.uniform((1, pixels.shape[2], (pixels.shape[3] + 1) // 2))
    return keep_above(pixels, coloured(half, pixels, colour="blue"), 0.3 * strength - 2.5)


def keep_above(pixels: Tensor, noise: Tensor, threshold: float) -> Tensor:
    """Black where the noise, N x 1 x H x W, is not above the threshold."""
    return pixels * (noise > threshold).to(torch.uint8)


@corruptions.register("brownish_noise", paper="arXiv:2102.11273", family="ImageNet-C-bar")
def brownish_noise(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Add noise to each channel that is strong at low frequencies."""
    (strength,) = constants
    half = draws.uniform((3, pixels.shape[2], (pixels.shape[3] + 1) // 2))
    return add(pixels, coloured(half, pixels, colour="brown"), 6.4 * strength)


def add(pixels: Tensor, noise: Tensor, amount: float) -> Tensor:
    """Pixels plus so many grey levels times the noise."""
    return truncate(pixels.float().add_(noise, alpha=amount))


def coloured(half: Tensor, pixels: Tensor, *, colour: Literal["blue", "brown"]) -> Tensor:
    """Noise of deviation one whose amplitudes follow the frequency.

    Args:
        half: phases as shares of the circle, N x C x H x ceil(W / 2), of the lower frequencies
            across; the higher ones have the same, turned by half a circle around the centre.
        pixels: of which size.
        colour: amplitudes are the frequency (blue), or one over its square plus one (brown).
    """
    height, width = pixels.shape[2:]
    rows, columns = rows_and_columns(pixels)
    squared = (rows - height / 2) ** 2 + (columns - width / 2) ** 2
    amplitude = squared.sqrt() if colour == "blue" else 1 / (squared + 1)
    turned = half[..., : width // 2].flip(2, 3)
    phases = torch.cat([half, turned], 3) * CIRCLE
    centred = torch.polar(amplitude.expand_as(phases), phases)
    spectrum = centred.roll((height // 2, width // 2), (2, 3))
    noise: Tensor = torch.fft.ifft2(spectrum).real
    return noise.div(noise.std((2, 3), correction=0, keepdim=True))
