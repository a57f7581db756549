"""Augmentations of whole batches, each with its own generator; nothing loops over images.

Random numbers are drawn on the CPU and moved, so that a seed means the same on every device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from stockpot.harden.augmentation.policies import randaugment, trivialaugment
from stockpot.types import Check

_TRIES = 10
"""Draws of a box before an image gets its middle."""
Augmentation = Literal[
    "flip",
    "crop",
    "random_resized_crop",
    "affine",
    "colour",
    "randaugment",
    "trivialaugment",
]
Augmentations = Annotated[
    tuple[Augmentation, ...], Check(lambda value: (value,) if isinstance(value, str) else value)
]
"""One or several."""


_EDITIONS = {"randaugment": 2}  # the operations and ranges as published, since the second


def edition_of(names: Iterable[str]) -> int:
    """The latest edition among augmentations; see `Tags.edition`."""
    return max((_EDITIONS.get(name, 1) for name in names), default=1)


def augment(pixels: Tensor, names: tuple[Augmentation, ...], generator: Generator) -> Tensor:
    """Apply the named augmentations in the order given."""
    steps: dict[Augmentation, Callable[[Tensor, Generator], Tensor]] = {
        "flip": flip,
        "crop": crop,
        "random_resized_crop": random_resized_crop,
        "affine": affine,
        "colour": colour,
        "randaugment": randaugment,
        "trivialaugment": trivialaugment,
    }
    for name in names:
        pixels = steps[name](pixels, generator)
    return pixels


def flip(pixels: Tensor, generator: Generator) -> Tensor:
    """Mirror half of the images."""
    chosen = _uniform((len(pixels), 1, 1, 1), generator, pixels) < 0.5
    return torch.where(chosen, pixels.flip(3), pixels)


def crop(pixels: Tensor, generator: Generator, share: float = 0.125) -> Tensor:
    """Shift by up to an eighth of the side, borders replicated (pad and crop)."""
    n, _, height, width = pixels.shape
    reach = max(1, round(share * max(height, width)))
    top = torch.randint(0, 2 * reach + 1, (n,), generator=generator).to(
        pixels.device, non_blocking=True
    )
    left = torch.randint(0, 2 * reach + 1, (n,), generator=generator).to(
        pixels.device, non_blocking=True
    )
    padded = F.pad(pixels, (reach,) * 4, mode="replicate")
    rows = (top[:, None] + torch.arange(height, device=pixels.device))[:, None, :, None]
    columns = (left[:, None] + torch.arange(width, device=pixels.device))[:, None, None, :]
    batch = torch.arange(n, device=pixels.device)[:, None, None, None]
    channels = torch.arange(pixels.shape[1], device=pixels.device)[None, :, None, None]
    return padded[batch, channels, rows, columns]


def random_resized_crop(
    pixels: Tensor,
    generator: Generator,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> Tensor:
    """Cut a box of random area and shape from each image and enlarge it (arXiv:1409.4842).

    A box that does not fit is drawn again; an image without luck in ten draws keeps its largest
    middle box of a permitted shape.
    """
    n, _, height, width = pixels.shape
    draw = torch.rand((n, _TRIES, 4), generator=generator, dtype=torch.float64)
    area = height * width * (scale[0] + (scale[1] - scale[0]) * draw[..., 0])
    low, high = math.log(ratio[0]), math.log(ratio[1])
    shape = torch.exp(low + (high - low) * draw[..., 1])
    wide, tall = (area * shape).sqrt().round(), (area / shape).sqrt().round()
    fits = (wide >= 1) & (wide <= width) & (tall >= 1) & (tall <= height)
    first = fits.int().argmax(dim=1, keepdim=True)  # the first that fits
    lucky = fits.any(dim=1)
    middle = min(max(width / height, ratio[0]), ratio[1])
    widest, tallest = min(width, round(height * middle)), min(height, round(width / middle))
    wide = torch.where(lucky, wide.gather(1, first)[:, 0], widest)
    tall = torch.where(lucky, tall.gather(1, first)[:, 0], tallest)
    down, across = (torch.where(lucky, draw[..., k].gather(1, first)[:, 0], 0.5) for k in (2, 3))
    top = torch.where(lucky, (down * (height - tall + 1)).floor(), (height - tall) // 2)
    left = torch.where(lucky, (across * (width - wide + 1)).floor(), (width - wide) // 2)
    return _enlarged(_enlarged(pixels, top, tall, 2), left, wide, 3)


def _enlarged(pixels: Tensor, first: Tensor, count: Tensor, axis: int) -> Tensor:
    """A stretch of each image along an axis, enlarged to the whole side by linear interpolation."""
    side = pixels.shape[axis]
    place = (torch.arange(side, dtype=torch.float64) + 0.5) * (count / side)[:, None] - 0.5
    last = (count - 1)[:, None]
    place = place.clamp(min=0).minimum(last)
    below = place.floor()
    index = [1, 1, 1, 1]
    index[0], index[axis] = len(pixels), side
    size = list(pixels.shape)

    def taken(offset: Tensor) -> Tensor:
        rows = (first[:, None] + offset).long().to(pixels.device, non_blocking=True)
        return pixels.gather(axis, rows.view(index).expand(size))

    share = (place - below).to(pixels).view(index)
    return taken(below) * (1 - share) + taken((below + 1).minimum(last)) * share


def affine(
    pixels: Tensor, generator: Generator, degrees: float = 15.0, zoom: float = 0.25
) -> Tensor:
    """Rotate, scale and squeeze a little; what comes from outside repeats the border."""
    n = len(pixels)
    draw = _uniform((n, 3), generator, pixels) * 2 - 1
    angle = draw[:, 0] * math.radians(degrees)
    scale_x, scale_y = torch.exp(draw[:, 1] * zoom), torch.exp(draw[:, 2] * zoom)
    cosine, sine = angle.cos(), angle.sin()
    zero = torch.zeros_like(angle)
    matrix = torch.stack(
        [
            torch.stack([scale_x * cosine, -scale_y * sine, zero], dim=1),
            torch.stack([scale_x * sine, scale_y * cosine, zero], dim=1),
        ],
        dim=1,
    )
    grid = F.affine_grid(matrix, list(pixels.shape), align_corners=False)
    return F.grid_sample(pixels, grid, padding_mode="border", align_corners=False)


def colour(pixels: Tensor, generator: Generator, strength: float = 0.3) -> Tensor:
    """Change contrast, brightness, saturation and the balance of the channels."""
    n = len(pixels)
    draw = _uniform((n, 6, 1, 1), generator, pixels) * 2 - 1
    grey = pixels.mean(dim=1, keepdim=True)
    pixels = grey + (pixels - grey) * (1 + 2 * strength * draw[:, 0:1])
    pixels = (pixels - 0.5) * (1 + strength * draw[:, 1:2]) + 0.5 + strength * draw[:, 2:3] / 2
    return (pixels * (1 + strength * draw[:, 3:6])).clamp(0, 1)


def mixup(
    pixels: Tensor, targets: Tensor, generator: Generator, alpha: float
) -> tuple[Tensor, Tensor]:
    """Blend every image and its (soft) target with another's; one share per batch."""
    share = _beta(alpha, generator)
    other = torch.randperm(len(pixels), generator=generator).to(pixels.device, non_blocking=True)
    return (
        share * pixels + (1 - share) * pixels[other],
        share * targets + (1 - share) * targets[other],
    )


def cutmix(
    pixels: Tensor, targets: Tensor, generator: Generator, alpha: float
) -> tuple[Tensor, Tensor]:
    """Paste a box of another image; targets are mixed by area."""
    share = _beta(alpha, generator)
    other = torch.randperm(len(pixels), generator=generator).to(pixels.device, non_blocking=True)
    height, width = pixels.shape[-2:]
    side = math.sqrt(1 - share)
    box_height, box_width = int(height * side), int(width * side)
    top = int(torch.randint(0, height - box_height + 1, (), generator=generator))
    left = int(torch.randint(0, width - box_width + 1, (), generator=generator))
    mixed = pixels.clone()
    box = (..., slice(top, top + box_height), slice(left, left + box_width))
    mixed[box] = pixels[other][box]
    kept = 1 - box_height * box_width / (height * width)
    return mixed, kept * targets + (1 - kept) * targets[other]


def _uniform(shape: tuple[int, ...], generator: Generator, like: Tensor) -> Tensor:
    return torch.rand(shape, generator=generator).to(like, non_blocking=True)


def _beta(alpha: float, generator: Generator) -> float:
    # Two gamma draws by a seeded numpy generator: torch's Beta has no generator argument.
    import numpy as np

    seed = int(torch.randint(0, 2**62, (), generator=generator))
    return float(np.random.default_rng(seed).beta(alpha, alpha))
