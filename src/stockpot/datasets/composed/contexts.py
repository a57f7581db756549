"""Where the backgrounds come from: photographs, textures, or other icons.

Each source offers numbered contexts and paints any number of pictures of them. The pictures of one
split are never made of what another split shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from stockpot.datasets.composed.matte import opacity
from stockpot.datasets.composed.textures import NAMES, draw_textures
from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.datasets.icons.loader import icons
from stockpot.datasets.named.cifar10 import CIFAR10
from stockpot.errors import BadParameterError, UserError

Backgrounds = Literal["cifar10", "texture", "icons"]
SIZE = 64
DRAWS = 10
"""Uniform numbers that one background takes at most."""

ICON_CONTEXTS = (
    *("building", "plant", "bird", "tool", "money", "four-legged animal", "sea animal", "book"),
    *("musical instrument", "footwear", "car", "mail", "ball", "moon", "boat", "insect"),
    *("cloud", "animal face", "arrow", "public sign"),
)
VAL_SHARE = 0.1
"""Photographs of the training split that only the validation split uses."""


class ContextSource(NamedTuple):
    """The contexts of one source, and how they are painted."""

    names: tuple[str, ...]
    paint: Callable[[NDArray[np.int64], Tensor], Tensor]
    """Context numbers and `DRAWS` uniform numbers for each -> N x 3 x 64 x 64 in [0, 255]."""
    licence: str


def context_source(kind: Backgrounds, split: str, objects: Sequence[str]) -> ContextSource:
    """The source of that name for one split, without the classes that the objects have."""
    if kind == "cifar10":
        return _photographs(split)
    if kind == "texture":
        return _textures()
    if kind == "icons":
        return _other_icons(split, objects)
    raise BadParameterError(f"backgrounds: expected cifar10, texture or icons, got {kind!r}.")


def _textures() -> ContextSource:
    def paint(which: NDArray[np.int64], draws: Tensor) -> Tensor:
        return draw_textures(which.tolist(), draws, SIZE)

    return ContextSource(NAMES, paint, "Apache-2.0")


def _photographs(split: str) -> ContextSource:
    if not CIFAR10.path.is_file():
        raise UserError(
            "object_on_context lays objects on the photographs of cifar10, which is not here yet.",
            hint="Run `stockpot data get cifar10`, or set backgrounds=texture or icons.",
        )
    photos = CIFAR10.load("test" if split == "test" else "train")
    border = round((1 - VAL_SHARE) * len(photos))
    kept = {"train": slice(0, border), "val": slice(border, None)}.get(split, slice(None))
    rows = torch.arange(len(photos))[kept]
    pools = [rows[photos.labels[rows] == number] for number in range(len(photos.classes))]
    pixels = pixels_of(photos)

    def paint(which: NDArray[np.int64], draws: Tensor) -> Tensor:
        small = pixels[_drawn_from(pools, which, draws[:, 0])].double()
        small = torch.where(draws[:, 1, None, None, None] < 0.5, small, small.flip(-1))
        return F.interpolate(small, size=(SIZE, SIZE), mode="bilinear", align_corners=False)

    return ContextSource(photos.classes, paint, photos.licence)


def _other_icons(split: str, objects: Sequence[str]) -> ContextSource:
    names = tuple(name for name in ICON_CONTEXTS if name not in objects)
    used = icons(split=split, classes=names)
    pools = [(used.labels == number).nonzero()[:, 0] for number in range(len(names))]
    pictures = pixels_of(used)
    clear = 1 - opacity(pictures)[:, None]
    ink = F.avg_pool2d((pictures.double() - 255 * clear).clamp_min(0), 2)
    clear = F.avg_pool2d(clear, 2)

    def paint(which: NDArray[np.int64], draws: Tensor) -> Tensor:
        # Four icons of the class at half size, on a page of a pale tint.
        page = 255 * (0.8 + 0.2 * draws[:, 4:7])[:, :, None, None]
        rows = [_drawn_from(pools, which, draws[:, corner]) for corner in range(4)]
        tiles = [ink[chosen] + clear[chosen] * page for chosen in rows]
        upper, lower = torch.cat(tiles[:2], dim=3), torch.cat(tiles[2:], dim=3)
        return torch.cat([upper, lower], dim=2)

    return ContextSource(names, paint, used.licence)


def _drawn_from(pools: list[Tensor], which: NDArray[np.int64], draws: Tensor) -> Tensor:
    sizes = torch.tensor([len(pool) for pool in pools])
    start = sizes.cumsum(0) - sizes
    chosen = torch.from_numpy(which)
    place = (draws * sizes[chosen]).long()
    return torch.cat(pools)[start[chosen] + place]


def pixels_of(data: Dataset) -> Tensor:
    """The decoded pictures of a dataset that keeps them so."""
    if not isinstance(data.images, TensorImages):
        raise UserError(f"{data.name}: expected decoded pictures.")
    return data.images.pixels
