"""Views of one picture: random crops of it, resized to its size and mirrored half of the time.

The crops are those of ImageNet's training, by which TPT and ZERO look too: 8 to 100 % of the area
at an aspect from 3/4 to 4/3. They are taken of the picture as it comes to the model; the authors
take them before it is cut to a square.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

_AREA, _ASPECT, _TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10


def crops(picture: Tensor, count: int, generator: Generator) -> Tensor:
    """The picture (3 x H x W floats) and `count - 1` random crops of it."""
    height, width = picture.shape[1:]
    views = [picture]
    for _ in range(count - 1):
        top, left, down, across = _box(height, width, generator)
        part = picture[None, :, top : top + down, left : left + across]
        view = F.interpolate(
            part, (height, width), mode="bilinear", align_corners=False, antialias=True
        )[0]
        mirrored = float(torch.rand((), generator=generator)) < 0.5
        views.append(view.flip(2) if mirrored else view)
    return torch.stack(views)


def _box(height: int, width: int, generator: Generator) -> tuple[int, int, int, int]:
    """Top, left, height and width of a random crop; all of the picture where none is found."""

    def between(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=generator))

    for _ in range(_TRIES):
        area = height * width * between(*_AREA)
        aspect = math.exp(between(math.log(_ASPECT[0]), math.log(_ASPECT[1])))
        across, down = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < across <= width and 0 < down <= height:
            top = int(between(0, height - down + 1))
            left = int(between(0, width - across + 1))
            return min(top, height - down), min(left, width - across), down, across
    return 0, 0, height, width
