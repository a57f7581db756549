"""Random views of a whole batch, as CoTTA and ROID make them (after KATANA, arXiv:2109.08191).

Colours are changed in random order, then the picture is turned, moved and scaled a little, and
perhaps mirrored; CoTTA also blurs it and adds noise. All pictures of a batch are changed alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

_LUMA = (0.2989, 0.587, 0.114)
_NOISE = 0.005


def random_view(
    pixels: Tensor,
    generator: Generator,
    *,
    soften: bool,
    padding: Literal["border", "reflection"],
) -> Tensor:
    """Float pixels in [0, 1] changed at random, in the same way for the whole batch.

    Args:
        pixels: N x 3 x H x W.
        generator: where chance comes from, on the CPU, so that a seed means the same anywhere.
        soften: also blur and add noise, as CoTTA does.
        padding: what comes in at the rim: its last pixels, or a mirror image.
    """

    def between(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=generator))

    changes: list[Callable[[Tensor], Tensor]] = [
        lambda seen: _blend(seen, torch.zeros_like(seen), between(0.6, 1.4)),
        lambda seen: _blend(seen, _grey(seen).mean((1, 2, 3), keepdim=True), between(0.7, 1.3)),
        lambda seen: _blend(seen, _grey(seen), between(0.5, 1.5)),
        lambda seen: turned_hue(seen, between(-0.06, 0.06)),
        lambda seen: seen.clamp(1e-8, 1) ** between(0.7, 1.3),
    ]
    pixels = pixels.clamp(0, 1)
    for number in torch.randperm(len(changes), generator=generator).tolist():
        pixels = changes[number](pixels)
    angle, scale = math.radians(between(-15, 15)), between(0.9, 1.1)
    # The authors move by up to 1/16 of a picture that is padded to twice its side.
    shift = [between(-0.25, 0.25), between(-0.25, 0.25)]
    pixels = _placed(pixels, angle, scale, shift, padding)
    if soften:
        pixels = _blurred(pixels, between(0.001, 0.5))
    if between(0, 1) < 0.5:
        pixels = pixels.flip(3)
    if soften:
        noise = torch.randn(pixels.shape, generator=generator) * _NOISE
        pixels = pixels + noise.to(pixels)
    return pixels.clamp(0, 1)


def _grey(pixels: Tensor) -> Tensor:
    weights = pixels.new_tensor(_LUMA).view(1, 3, 1, 1)
    return (pixels * weights).sum(1, keepdim=True)


def _blend(pixels: Tensor, other: Tensor, share: float) -> Tensor:
    return (share * pixels + (1 - share) * other).clamp(0, 1)


def turned_hue(pixels: Tensor, by: float) -> Tensor:
    """The HSV hue turned by a share of the circle; saturation and value stay."""
    value, low = pixels.amax(1), pixels.amin(1)
    chroma = value - low
    red, green, blue = pixels.unbind(1)
    safe = chroma.clamp(min=1e-8)
    hue = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    hue = (hue + 6 * by) % 6
    # Each channel is the value less the chroma, by how far the hue is from that channel's third.
    parts = []
    for offset in (5, 3, 1):
        place = (offset + hue) % 6
        parts.append(value - chroma * torch.minimum(place, 4 - place).clamp(0, 1))
    return torch.stack(parts, 1)


def _placed(pixels: Tensor, angle: float, scale: float, shift: list[float], padding: str) -> Tensor:
    """Turned, scaled and moved about the centre, bilinearly; shifts are in half sides."""
    height, width = pixels.shape[2:]
    cosine, sine = math.cos(angle) / scale, math.sin(angle) / scale
    across, down = shift
    ratio = height / width
    matrix = pixels.new_tensor(
        [
            [cosine, sine * ratio, -cosine * across - sine * ratio * down],
            [-sine / ratio, cosine, sine / ratio * across - cosine * down],
        ]
    )
    grid = F.affine_grid(matrix.expand(len(pixels), 2, 3), list(pixels.shape), align_corners=False)
    return F.grid_sample(pixels, grid, padding_mode=padding, align_corners=False)


def _blurred(pixels: Tensor, sigma: float) -> Tensor:
    """A Gaussian blur of five pixels."""
    weights = torch.exp(-(torch.arange(-2.0, 3.0) ** 2) / (2 * sigma**2))
    weights = (weights / weights.sum()).to(pixels)
    channels = pixels.shape[1]
    padded = F.pad(pixels, (2, 2, 2, 2), mode="reflect")
    rows = F.conv2d(padded, weights.view(1, 1, 1, 5).expand(channels, 1, 1, 5), groups=channels)
    return F.conv2d(rows, weights.view(1, 1, 5, 1).expand(channels, 1, 5, 1), groups=channels)
