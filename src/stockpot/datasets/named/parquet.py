"""Pictures and labels from parquet files as the Hugging Face hub keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch

from stockpot.datasets.named.decoded import Part
from stockpot.datasets.pictures import opened


def decode_equal(path: Path, image: str, label: str, mode: str) -> Part:
    """All pictures of one parquet file, which must be of one size.

    Args:
        path: the file.
        image: the column with `{bytes, path}`.
        label: the column with integer labels.
        mode: the Pillow mode to decode to, `RGB` or `L`.
    """
    table = pq.read_table(path, columns=[image, label])
    encoded: Sequence[dict[str, Any]] = table[image].to_pylist()

    def decode(cell: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
        with opened(cell["bytes"]) as picture:
            return np.asarray(picture.convert(mode))

    with ThreadPoolExecutor() as threads:
        pixels = np.stack(list(threads.map(decode, encoded)))
    if pixels.ndim == 3:
        pixels = pixels[..., None]
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
    return Part(images, torch.tensor(table[label].to_pylist()))
