"""Blur by a fixed kernel: gaussian and defocus."""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.draws import Draws
from stockpot.corrupt.levels import truncate
from stockpot.corrupt.separable import gaussian_matrix, smooth


@corruptions.register("gaussian_blur", paper="arXiv:1903.12261", group="blur", benchmark=False)
def gaussian_blur(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Smooth with a gaussian kernel; the border repeats the outermost pixel."""
    (sigma,) = constants
    return truncate(smooth(pixels.float(), sigma))


@corruptions.register("defocus_blur", paper="arXiv:1903.12261", group="blur", benchmark=True)
def defocus_blur(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Smooth with a disk, as a lens out of focus does; the border is mirrored."""
    radius, antialias = constants
    reach = _reach(radius)
    padded = F.pad(pixels.float(), (reach, reach, reach, reach), mode="reflect")
    height, width = padded.shape[-2:]
    spectrum = _spectrum(radius, antialias, height, width, pixels.device)
    blurred = torch.fft.irfft2(torch.fft.rfft2(padded).mul_(spectrum), s=(height, width))
    # The circular convolution is right wherever the kernel stays inside, which is the picture.
    return truncate(blurred[..., reach:-reach, reach:-reach])


def disk(radius: float, antialias: float) -> Tensor:
    """A disk of weight one on a 17 x 17 grid (larger above radius 8), its edge softened.

    Quirks kept: radii below one leave a single pixel, so CIFAR-10-C's first severities blur only by
    the softening; a disk that reaches the grid's edge is softened with the mirrored border.
    """
    reach = _reach(radius)
    axis = torch.arange(-reach, reach + 1, dtype=torch.float64)
    inside = (axis[:, None] ** 2 + axis**2 <= radius**2).float()
    taps = 1 if radius <= 8 else 2
    soften = gaussian_matrix(2 * reach + 1, antialias, taps, "mirror", torch.device("cpu"))
    return soften @ (inside / inside.sum()) @ soften.T


def _reach(radius: float) -> int:
    return 8 if radius <= 8 else int(radius)


@lru_cache(maxsize=64)
def _spectrum(
    radius: float, antialias: float, height: int, width: int, device: torch.device
) -> Tensor:
    kernel = disk(radius, antialias)
    reach = len(kernel) // 2
    canvas = torch.zeros(height, width)
    canvas[: len(kernel), : len(kernel)] = kernel
    spectrum: Tensor = torch.fft.rfft2(canvas.roll((-reach, -reach), (0, 1)))
    return spectrum.to(device)
