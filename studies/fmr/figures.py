"""Pictures of the FMR study: images, and what the search made of them."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import load_file
from searches import AUTOENCODERS, PAIR

from stockpot.files import write_atomic

SHOWN, ZOOM = 14, 2


def draw(
    run: Path, images: torch.Tensor, file: Path, rows: NDArray[np.intp] | slice = slice(None)
) -> None:
    """Above the images, below what the search made of them for both autoencoders and two kinds.

    Args:
        run: where the images lie that were made.
        images: as they were.
        file: the picture.
        rows: of which images the first few are shown.
    """
    made = [run / "made" / f"{generator}-{kind}-0.safetensors"
            for generator in AUTOENCODERS for kind in PAIR]  # fmt: skip
    if all(path.is_file() for path in made):
        sets = [images, *(load_file(path)["images"] for path in made)]
        write_atomic(file, sheet([pixels[rows][:SHOWN] for pixels in sets]))


def sheet(rows: list[torch.Tensor]) -> bytes:
    """Rows of uint8 pictures as a PNG."""
    table = torch.stack([torch.cat(list(row), dim=2) for row in rows])
    whole = torch.cat(list(table), dim=1).permute(1, 2, 0).numpy()
    large = np.repeat(np.repeat(whole, ZOOM, axis=0), ZOOM, axis=1)
    stream = BytesIO()
    Image.fromarray(large).save(stream, format="PNG", optimize=True)
    return stream.getvalue()
