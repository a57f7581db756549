"""RandAugment: a few changes of random kind and fixed strength for each image (arXiv:1909.13719).

Images of a kind are changed together. Besides geometry and grey levels the kinds here include
brightness, contrast, colour and sharpness, some of which are also benchmark corruptions: scores on
those then say less about unforeseen ones. `augmix` leaves them out.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from stockpot.harden.simple_changes import CHANGES, Change

_ENHANCED = 0.9  # the strongest change of an enhancement: a factor of 0.1 or 1.9
_SMOOTH = torch.tensor([[1.0, 1.0, 1.0], [1.0, 5.0, 1.0], [1.0, 1.0, 1.0]]) / 13


def randaugment(
    pixels: Tensor,
    generator: Generator,
    layers: int = 2,
    magnitude: float = 9.0,
    chance: float = 0.5,
) -> Tensor:
    """Change each image up to `layers` times, each time with some chance, at one strength.

    Args:
        pixels: N x 3 x H x W in [0, 1].
        generator: draws on the CPU, so that a seed means the same on every device.
        layers: changes per image, at most.
        magnitude: from 0 to 10.
        chance: of each change.
    """
    n = len(pixels)
    level = pixels.new_full((n,), magnitude / 10)
    for _ in range(layers):
        kinds = torch.randint(len(KINDS), (n,), generator=generator)
        active = torch.rand(n, generator=generator) < chance
        signs = torch.where(torch.rand(n, generator=generator) < 0.5, -1.0, 1.0).to(pixels)
        changed = pixels.clone()
        for index, change in enumerate(KINDS.values()):
            rows = (active & (kinds == index)).nonzero()[:, 0]
            if len(rows):
                here = rows.to(pixels.device, non_blocking=True)
                changed[here] = change(pixels[here], level[here], signs[here])
        pixels = changed
    return pixels


def brightness(pixels: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Towards black, or away from it."""
    return _blend(torch.zeros_like(pixels), pixels, level, sign)


def contrast(pixels: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Towards the image's mean grey, or away from it."""
    grey = _grey(pixels).mean(dim=(2, 3), keepdim=True)
    return _blend(grey.expand_as(pixels), pixels, level, sign)


def colour(pixels: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Towards the grey image, or away from it."""
    return _blend(_grey(pixels).expand_as(pixels), pixels, level, sign)


def sharpness(pixels: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Towards a smoothed copy, or away from it."""
    kernel = _SMOOTH.to(pixels).expand(pixels.shape[1], 1, 3, 3)
    padded = F.pad(pixels, (1, 1, 1, 1), mode="replicate")
    smooth = F.conv2d(padded, kernel, groups=pixels.shape[1])
    return _blend(smooth, pixels, level, sign)


def _blend(other: Tensor, pixels: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    factor = (1 + _ENHANCED * level * sign).view(-1, 1, 1, 1)
    return (other + factor * (pixels - other)).clamp(0, 1)


def _grey(pixels: Tensor) -> Tensor:
    shares = pixels.new_tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    return (pixels * shares).sum(dim=1, keepdim=True)


KINDS: dict[str, Change] = CHANGES | {
    "brightness": brightness,
    "contrast": contrast,
    "colour": colour,
    "sharpness": sharpness,
}
