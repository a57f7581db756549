"""Changes of RandAugment and TrivialAugment, batched, with torchvision's arithmetic bit for bit.

Each takes images as whole numbers from 0 to 255 (in float32) and one magnitude for each image, and
gives the same. Geometry takes the nearest pixel, and what comes from outside is black.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_GREY = (0.2989, 0.587, 0.114)


def identity(levels: Tensor, magnitude: Tensor) -> Tensor:
    """Nothing."""
    return levels


def brightness(levels: Tensor, magnitude: Tensor) -> Tensor:
    """Away from black, or towards it where the magnitude is negative."""
    return _blend(levels, torch.zeros_like(levels), magnitude)


def colour(levels: Tensor, magnitude: Tensor) -> Tensor:
    """Away from the grey image, or towards it."""
    return _blend(levels, _grey(levels).expand_as(levels), magnitude)


def contrast(levels: Tensor, magnitude: Tensor) -> Tensor:
    """Away from the mean grey, or towards it."""
    mean = _grey(levels).mean(dim=(1, 2, 3), keepdim=True)
    return _blend(levels, mean.expand_as(levels), magnitude)


def sharpness(levels: Tensor, magnitude: Tensor) -> Tensor:
    """Away from a smoothed copy, or towards it; the border stays."""
    height, width = levels.shape[2:]
    if min(height, width) <= 2:
        return levels
    # Nine neighbours, the middle one five times: whole numbers, so that every device adds alike.
    rows = [slice(k, height - 2 + k) for k in range(3)]
    columns = [slice(k, width - 2 + k) for k in range(3)]
    total = sum((levels[:, :, r, c] for r in rows for c in columns), 4 * levels[:, :, 1:-1, 1:-1])
    smooth = levels.clone()
    smooth[:, :, 1:-1, 1:-1] = (total / 13).round()
    return _blend(levels, smooth, magnitude)


def posterize(levels: Tensor, magnitude: Tensor) -> Tensor:
    """Keep so many bits of each value."""
    size = (2 ** (8 - magnitude)).to(levels).view(-1, 1, 1, 1)
    return (levels / size).floor() * size


def solarize(levels: Tensor, magnitude: Tensor) -> Tensor:
    """Turn values from the magnitude on into their negative."""
    threshold = magnitude.to(levels).view(-1, 1, 1, 1)
    return torch.where(levels >= threshold, 255 - levels, levels)


def autocontrast(levels: Tensor, magnitude: Tensor) -> Tensor:
    """Stretch each channel to the full range."""
    low, high = levels.amin(dim=(2, 3), keepdim=True), levels.amax(dim=(2, 3), keepdim=True)
    stretched = ((levels - low) * (255 / (high - low))).clamp(0, 255).floor()
    return torch.where(high > low, stretched, levels)


def equalize(levels: Tensor, magnitude: Tensor) -> Tensor:
    """Give each channel a flat histogram."""
    n, channels, height, width = levels.shape
    values = levels.long().view(n * channels, height * width)
    counts = torch.zeros(n * channels, 256, dtype=torch.long, device=levels.device)
    counts.scatter_add_(1, values, torch.ones_like(values))
    last = counts.gather(1, values.amax(dim=1, keepdim=True))
    step = (height * width - last) // 255
    whole = step.clamp(min=1)
    table = F.pad((counts.cumsum(dim=1) + step // 2) // whole, (1, -1)).clamp(0, 255)
    flat = torch.where(step > 0, table.gather(1, values), values)
    return flat.view_as(levels).to(levels)


def rotate(levels: Tensor, magnitude: Tensor) -> Tensor:
    """Turn by so many degrees."""
    angle = magnitude.double().deg2rad()
    return _sampled(levels, a=angle.cos(), b=-angle.sin(), d=angle.sin(), e=angle.cos())


def shear_x(levels: Tensor, magnitude: Tensor) -> Tensor:
    """Move each row by so many pixels per row; the first one stays."""
    slope = magnitude.double()
    return _sampled(levels, b=slope, c=slope * levels.shape[2] / 2)


def shear_y(levels: Tensor, magnitude: Tensor) -> Tensor:
    """Move each column by so many pixels per column; the first one stays."""
    slope = magnitude.double()
    return _sampled(levels, d=slope, f=slope * levels.shape[3] / 2)


def translate_x(levels: Tensor, magnitude: Tensor) -> Tensor:
    """Move by whole pixels along the rows."""
    return _sampled(levels, c=-magnitude.double().trunc())


def translate_y(levels: Tensor, magnitude: Tensor) -> Tensor:
    """Move by whole pixels along the columns."""
    return _sampled(levels, f=-magnitude.double().trunc())


def _blend(levels: Tensor, other: Tensor, magnitude: Tensor) -> Tensor:
    share = (1 + magnitude.double()).view(-1, 1, 1, 1)
    mixed = share.to(levels) * levels + (1 - share).to(levels) * other
    return mixed.clamp(0, 255).floor()


def _grey(levels: Tensor) -> Tensor:
    red, green, blue = levels[:, 0:1], levels[:, 1:2], levels[:, 2:3]
    return (_GREY[0] * red + _GREY[1] * green + _GREY[2] * blue).floor()


def _sampled(levels: Tensor, **entries: Tensor) -> Tensor:
    """The pixel nearest to (a x + b y + c, d x + e y + f), in pixels from the middle."""
    n, _, height, width = levels.shape
    one = torch.ones(n, dtype=torch.float64, device=levels.device)
    default = {"a": one, "b": 0 * one, "c": 0 * one, "d": 0 * one, "e": one, "f": 0 * one} | entries
    matrix = torch.stack([default[key] for key in "abcdef"], dim=1).view(n, 2, 3).to(levels)
    half = torch.tensor([width / 2, height / 2], device=levels.device)
    # Written out, because a product of matrices may be rounded to fewer digits on a GPU.
    across, down, there = (matrix / half.view(1, 2, 1)).view(n, 1, 1, 2, 3).unbind(dim=-1)
    x = (torch.arange(width, device=levels.device) + (0.5 - width / 2)).view(1, 1, width, 1)
    y = (torch.arange(height, device=levels.device) + (0.5 - height / 2)).view(1, height, 1, 1)
    grid = across * x + down * y + there
    return F.grid_sample(levels, grid, mode="nearest", align_corners=False)
