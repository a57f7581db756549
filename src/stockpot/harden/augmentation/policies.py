"""RandAugment (arXiv:1909.13719) and TrivialAugment (arXiv:2103.10158): which changes, how strong.

Kinds, ranges and arithmetic are torchvision's: fourteen changes, and magnitudes in 31 steps. Images
that get the same change are changed together. Brightness, contrast and colour are benchmark
corruptions or come near them, so scores on those then say less about unforeseen ones; `augmix`
leaves them out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from stockpot.harden.augmentation import operations as do

_STEPS = 31
Operation = Callable[[Tensor, Tensor], Tensor]


class Kind(NamedTuple):
    """A change, its magnitude at each step, and whether its sign is drawn."""

    change: Operation
    magnitudes: Tensor
    signed: bool = False


def randaugment(
    pixels: Tensor, generator: Generator, layers: int = 2, magnitude: int = 9
) -> Tensor:
    """Change each image `layers` times at one step of strength.

    Args:
        pixels: N x 3 x H x W in [0, 1]; a changed image has 256 levels.
        generator: draws on the CPU, so that a seed means the same on every device.
        layers: changes per image.
        magnitude: the step, from 0 to 30.
    """
    kinds = randaugment_kinds(pixels.shape[2], pixels.shape[3])
    steps = torch.full((len(pixels),), magnitude)
    for _ in range(layers):
        pixels = _changed(pixels, kinds, steps, generator)
    return pixels


def trivialaugment(pixels: Tensor, generator: Generator) -> Tensor:
    """Change each image once, at a strength drawn from the wide ranges."""
    steps = torch.randint(_STEPS, (len(pixels),), generator=generator)
    return _changed(pixels, trivialaugment_kinds(), steps, generator)


def randaugment_kinds(height: int, width: int) -> dict[str, Kind]:
    """The changes of RandAugment for images of a size."""
    shift = 150 / 331
    return _kinds(0.3, (shift * height, shift * width), 30.0, 0.9, 4)


def trivialaugment_kinds() -> dict[str, Kind]:
    """The changes of TrivialAugment in its wide ranges."""
    return _kinds(0.99, (32.0, 32.0), 135.0, 0.99, 6)


def _kinds(
    shear: float, shift: tuple[float, float], turn: float, enhance: float, bits: int
) -> dict[str, Kind]:
    none = torch.zeros(_STEPS)
    lost = (torch.arange(_STEPS) / ((_STEPS - 1) / bits)).round()
    enhanced = torch.linspace(0, enhance, _STEPS)
    return {
        "identity": Kind(do.identity, none),
        "shear_x": Kind(do.shear_x, torch.linspace(0, shear, _STEPS), True),
        "shear_y": Kind(do.shear_y, torch.linspace(0, shear, _STEPS), True),
        "translate_x": Kind(do.translate_x, torch.linspace(0, shift[1], _STEPS), True),
        "translate_y": Kind(do.translate_y, torch.linspace(0, shift[0], _STEPS), True),
        "rotate": Kind(do.rotate, torch.linspace(0, turn, _STEPS), True),
        "brightness": Kind(do.brightness, enhanced, True),
        "colour": Kind(do.colour, enhanced, True),
        "contrast": Kind(do.contrast, enhanced, True),
        "sharpness": Kind(do.sharpness, enhanced, True),
        "posterize": Kind(do.posterize, 8 - lost),
        "solarize": Kind(do.solarize, torch.linspace(255, 0, _STEPS)),
        "autocontrast": Kind(do.autocontrast, none),
        "equalize": Kind(do.equalize, none),
    }


def _changed(pixels: Tensor, kinds: dict[str, Kind], steps: Tensor, generator: Generator) -> Tensor:
    n = len(pixels)
    drawn = torch.randint(len(kinds), (n,), generator=generator)
    signs = 1 - 2 * torch.randint(2, (n,), generator=generator)
    changed = pixels.clone()
    for index, (change, magnitudes, signed) in enumerate(kinds.values()):
        rows = (drawn == index).nonzero()[:, 0]
        if not len(rows) or change is do.identity:
            continue
        strength = magnitudes[steps[rows]] * (signs[rows] if signed else 1)
        here = rows.to(pixels.device, non_blocking=True)
        levels = (pixels[here] * 255).round()
        changed[here] = change(levels, strength.to(pixels.device, non_blocking=True)) / 255
    return changed
