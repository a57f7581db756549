"""Batches through Pillow: one picture per thread, planes in, planes out."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from PIL import Image
from torch import Tensor


def map_pictures(change: Callable[[Image.Image], Image.Image], pixels: Tensor) -> Tensor:
    """Apply `change` (RGB picture to RGB picture of that size) to N x 3 x H x W uint8 pictures.

    Planes are merged and split by Pillow, which is several times faster than transposing the array.
    """
    source = pixels.contiguous().numpy()
    result = np.empty_like(source)
    height, width = source.shape[2:]

    def one(row: int) -> None:
        planes = [
            Image.frombuffer("L", (width, height), plane, "raw", "L", 0, 1) for plane in source[row]
        ]
        changed = change(Image.merge("RGB", planes))
        for channel, band in enumerate("RGB"):
            plane = np.frombuffer(changed.tobytes("raw", band), dtype=np.uint8)
            result[row, channel] = plane.reshape(height, width)

    threads = min(len(source), torch.get_num_threads())
    if threads > 1:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(one, range(len(source))))
    else:
        for row in range(len(source)):
            one(row)
    return torch.from_numpy(result)
