"""Simple changes of images, batched: geometry and grey levels, none a benchmark corruption.

Each takes images, a level from 0 to 1 and a sign for each image. Contrast, brightness, noise and
blur are left out on purpose: robustness to them is what the benchmark measures.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

Change = Callable[[Tensor, Tensor, Tensor], Tensor]


def autocontrast(pixels: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Stretch each channel to the full range; the level plays no part."""
    low, high = pixels.amin(dim=(2, 3), keepdim=True), pixels.amax(dim=(2, 3), keepdim=True)
    return torch.where(high > low, (pixels - low) / (high - low).clamp(min=1e-6), pixels)


def equalize(pixels: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Give each channel a flat histogram over 256 grey levels; the level plays no part."""
    n, channels, height, width = pixels.shape
    grey = (pixels * 255).round().long().view(n * channels, -1)
    counts = torch.zeros(n * channels, 256, device=pixels.device)
    counts.scatter_add_(1, grey, torch.ones_like(grey, dtype=torch.float32))
    below = counts.cumsum(dim=1)
    first = below.gather(1, grey.amin(dim=1, keepdim=True))
    total = float(height * width)
    ranks = (below - first) / (total - first).clamp(min=1)
    flat = first >= total  # one grey level only
    equal = torch.where(flat, grey.float() / 255, ranks.gather(1, grey))
    return equal.view_as(pixels).clamp(0, 1)


def posterize(pixels: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Keep four bits of each value, or fewer."""
    bits = 4 - (level * 4).floor().clamp(max=3)
    size = (2 ** (8 - bits)).view(-1, 1, 1, 1)
    return ((pixels * 255 + 1e-4) / size).floor() * size / 255


def solarize(pixels: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Turn values above a threshold into their negative."""
    threshold = (1 - level).view(-1, 1, 1, 1)
    return torch.where(pixels >= threshold, 1 - pixels, pixels)


def rotate(pixels: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Rotate by up to 30 degrees."""
    angle = sign * level * math.radians(30)
    cosine, sine = angle.cos(), angle.sin()
    # Equal angles in pixels, whatever the shape of the picture.
    tall = pixels.shape[2] / pixels.shape[3]
    return _affine(pixels, a=cosine, b=-sine * tall, d=sine / tall, e=cosine)


def shear_x(pixels: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Shear along rows by up to 0.3."""
    return _affine(pixels, b=sign * level * 0.3 * pixels.shape[2] / pixels.shape[3])


def shear_y(pixels: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Shear along columns by up to 0.3."""
    return _affine(pixels, d=sign * level * 0.3 * pixels.shape[3] / pixels.shape[2])


def translate_x(pixels: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Shift along rows by up to a third of the width."""
    return _affine(pixels, c=sign * level * 2 / 3)


def translate_y(pixels: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Shift along columns by up to a third of the height."""
    return _affine(pixels, f=sign * level * 2 / 3)


def _affine(pixels: Tensor, **entries: Tensor) -> Tensor:
    """Sample at (a x + b y + c, d x + e y + f); what comes from outside is black."""
    one, zero = pixels.new_ones(len(pixels)), pixels.new_zeros(len(pixels))
    default = {"a": one, "b": zero, "c": zero, "d": zero, "e": one, "f": zero} | entries
    matrix = torch.stack([default[key] for key in "abcdef"], dim=1).view(-1, 2, 3)
    grid = F.affine_grid(matrix, list(pixels.shape), align_corners=False)
    return F.grid_sample(pixels, grid, align_corners=False).clamp(0, 1)


CHANGES: dict[str, Change] = {
    "autocontrast": autocontrast,
    "equalize": equalize,
    "posterize": posterize,
    "rotate": rotate,
    "solarize": solarize,
    "shear_x": shear_x,
    "shear_y": shear_y,
    "translate_x": translate_x,
    "translate_y": translate_y,
}


def one_change(pixels: Tensor, active: Tensor, generator: Generator, severity: float) -> Tensor:
    """One change of random kind and strength for each active image; images of a kind together."""
    n = len(pixels)
    kinds = torch.randint(len(CHANGES), (n,), generator=generator)
    levels = (0.1 + (severity - 0.1) * torch.rand(n, generator=generator)) / 10
    signs = torch.where(torch.rand(n, generator=generator) < 0.5, -1.0, 1.0)
    result = pixels.clone()
    for index, change in enumerate(CHANGES.values()):
        rows = (active & (kinds == index)).nonzero()[:, 0]
        if len(rows):
            here = rows.to(pixels.device)
            level, sign = levels[rows].to(pixels), signs[rows].to(pixels)
            result[here] = change(pixels[here], level, sign)
    return result
