"""A picture, and how the hub's processors are made to resize it in one order."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image

_BY_PILLOW = Image.Image.resize


def picture(width: int, height: int) -> Image.Image:
    """Soft patches of colour."""
    rows = np.random.default_rng(0).integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    return Image.fromarray(rows).resize((width, height), Image.Resampling.BICUBIC)


def rows_first(image: Image.Image, size: tuple[int, int], **options: Any) -> Image.Image:
    """The hub's processors leave it to Pillow which way goes first; it hangs on its version."""
    rows_done = _BY_PILLOW(image, (size[0], image.height), **options)
    return _BY_PILLOW(rows_done, size, **options)
