"""Laying cut-out objects on backgrounds: sizes, places, and the masks that come for free."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

SMALLEST, LARGEST = 0.5, 0.8
"""The side of the object's frame as a share of the picture's."""
DRAWS = 4
"""Uniform numbers that one placement takes."""
TIE = 1e-6
"""What lies so near to a half counts as a half: processors differ in the last bits of a sum."""


class Layer(NamedTuple):
    """Objects in their places: what they cover, and their colour times that."""

    ink: Tensor
    cover: Tensor


def placed(pictures: Tensor, cover: Tensor, draws: Tensor) -> Layer:
    """Objects scaled, mirrored and moved as their draws say.

    Args:
        pictures: N x 3 x S x S drawings on white, in [0, 255].
        cover: their opacity, N x S x S.
        draws: `DRAWS` uniform numbers for each: scale, column, row, mirroring.
    """
    side = pictures.shape[-1]
    # Colour times opacity: scaling that never mixes the page into the object.
    ink = (pictures.double() - 255 * (1 - cover[:, None])).clamp_min(0)
    layers = torch.cat([ink, cover[:, None].double()], dim=1)
    layers = torch.where(draws[:, 3, None, None, None] < 0.5, layers, layers.flip(-1))
    low, high = round(SMALLEST * side), round(LARGEST * side)
    sizes = low + (draws[:, 0] * (high - low + 1)).long()
    result = torch.zeros_like(layers)
    for size in range(low, high + 1):
        rows = (sizes == size).nonzero()[:, 0]
        if len(rows):
            small = F.interpolate(layers[rows], size=(size, size), mode="bilinear", antialias=True)
            result[rows] = _moved(small, draws[rows, 1], draws[rows, 2], side)
    return Layer(result[:, :3], result[:, 3].clamp(0, 1))


def laid_on(layer: Layer, backgrounds: Tensor) -> Tensor:
    """The layer over backgrounds in [0, 255], as uint8."""
    mixed = layer.ink + (1 - layer.cover[:, None]) * backgrounds
    return (mixed + 0.5 + TIE).floor().clamp(0, 255).to(torch.uint8)


def masked(layer: Layer) -> Tensor:
    """Where the objects cover more than half of a pixel."""
    return layer.cover > 0.5 + TIE


def _moved(small: Tensor, across: Tensor, down: Tensor, side: int) -> Tensor:
    """Each small picture somewhere on its own canvas."""
    size = small.shape[-1]
    room = side - size + 1
    span = torch.arange(size)
    columns = (across * room).long()[:, None] + span
    rows = (down * room).long()[:, None] + span
    canvas = torch.zeros(len(small), side, side, small.shape[1], dtype=small.dtype)
    picture = torch.arange(len(small))[:, None, None]
    canvas[picture, rows[:, :, None], columns[:, None, :]] = small.permute(0, 2, 3, 1)
    return canvas.permute(0, 3, 1, 2)
