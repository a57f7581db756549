"""Pictures in whatever form somebody has them, as batches of pixels for a network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.pictures import BROKEN, as_rgb, open_rgb
from stockpot.datasets.stream.geometry import Fit
from stockpot.errors import BadDataError

Picture = Image.Image | str | Path
Pictures = Picture | Tensor | Dataset | Sequence[Picture]
"""One picture, several, a batch of pixels, or a dataset."""

_BATCH = 64


def as_batches(images: Pictures, fit: Fit) -> Iterator[Tensor]:
    """Batches of pixels; pictures are brought to a network's size by its `fit`."""
    if isinstance(images, Tensor):
        if images.ndim not in (3, 4):
            raise BadDataError(f"expected pixels as N x 3 x H x W, got {tuple(images.shape)}.")
        yield from torch.split(images if images.ndim == 4 else images[None], _BATCH)
        return
    if isinstance(images, Dataset):
        yield from images.images.batches(_BATCH, fit)
        return
    several = [images] if isinstance(images, Image.Image | str | Path) else list(images)
    for start in range(0, len(several), _BATCH):
        fitted = [np.asarray(fit(_opened(one))) for one in several[start : start + _BATCH]]
        yield torch.from_numpy(np.stack(fitted).transpose(0, 3, 1, 2).copy())


def _opened(picture: Picture) -> Image.Image:
    if isinstance(picture, Image.Image):
        return as_rgb(picture)
    try:
        return open_rgb(Path(picture).expanduser())
    except BROKEN as problem:
        raise BadDataError(f"{picture}: expected a picture ({problem}).") from None
