"""Pictures of the FMR study: images, and what the search made of them."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file
from searches import AUTOENCODERS, PAIR

from stockpot.files import write_atomic

SHOWN, ZOOM = 14, 2


def draw(run: Path, images: torch.Tensor, file: Path) -> None:
    """Above the images, below what the search made of them for both autoencoders and two kinds."""
    made = [run / "made" / f"{generator}-{kind}-0.safetensors"
            for generator in AUTOENCODERS for kind in PAIR]  # fmt: skip
    if all(path.is_file() for path in made):
        rows = [images[:SHOWN], *(load_file(path)["images"][:SHOWN] for path in made)]
        write_atomic(file, sheet(rows))


def sheet(rows: list[torch.Tensor]) -> bytes:
    """Rows of uint8 pictures as a PNG."""
    table = torch.stack([torch.cat(list(row), dim=2) for row in rows])
    whole = torch.cat(list(table), dim=1).permute(1, 2, 0).numpy()
    large = np.repeat(np.repeat(whole, ZOOM, axis=0), ZOOM, axis=1)
    stream = BytesIO()
    Image.fromarray(large).save(stream, format="PNG", optimize=True)
    return stream.getvalue()
