"""Other pictures: what mosaics and stickers are made of, and styles are taken from."""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from PIL import Image, ImageOps
from torch import Tensor

from stockpot.corrupt.draws import Draws
from stockpot.datasets.load import load_dataset

PROCEDURAL = "procedural"
_MADE = 1024
_READ = 4096
"""So many pictures of a dataset at most."""
_SIDE = 64


@lru_cache(maxsize=16)
def other_pictures(source: str, side: int, device: torch.device) -> Tensor:
    """Pictures as floats 0 to 255, K x 3 x side x side.

    Args:
        source: `procedural`, or any dataset or folder of pictures.
        side: to which they are brought.
        device: where they are wanted.
    """
    whole = _stripes() if source == PROCEDURAL else _read(source)
    return F.adaptive_avg_pool2d(whole, side).to(device)


@lru_cache(maxsize=1)
def _stripes() -> Tensor:
    """Two colours in waves, the same on every machine; their means fill the cube of colours."""
    draws = Draws(range(_MADE), "tiles", torch.device("cpu"))
    colours = draws.uniform((2, 3, 1, 1)) * 255
    across, down, phase = (draws.uniform((3, 1, 1), 1) - 0.5).mul(12).unbind(1)
    places = torch.linspace(-1, 1, _SIDE)
    mix = 0.5 + 0.5 * torch.sin(across * places + down * places[:, None] + phase)
    first, second = colours[:, 0], colours[:, 0] * 0.5 + colours[:, 1] * 0.5
    return first + mix[:, None] * (second - first)


@lru_cache(maxsize=2)
def _read(source: str) -> Tensor:
    data = load_dataset(source)
    data = data.limited(_READ) if len(data) > _READ else data
    parts = [batch.images.float() for batch in data.batches(256, _square)]
    return torch.cat([F.adaptive_avg_pool2d(part, _SIDE) for part in parts])


def _square(image: Image.Image) -> Image.Image:
    return ImageOps.fit(image.convert("RGB"), (_SIDE, _SIDE))
