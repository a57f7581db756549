"""Pictures of the FMR study: images, and what the search made of them."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file
from searches import PAIR, pixels_of
from study import DATA, LEARNED, searched_images

from stockpot.datasets.load import load_dataset
from stockpot.files import write_atomic

HERE = Path(__file__).parent
SHOWN, ZOOM = 14, 2


def draw(run: Path) -> None:
    """For each dataset one picture: above the images, below what was made of them."""
    for data in DATA:
        made = [run / data / "made" / f"{generator}-{kind}-0.safetensors"
                for generator in LEARNED for kind in PAIR]  # fmt: skip
        if not all(path.is_file() for path in made):
            continue
        rows = [pixels_of(searched_images(load_dataset(data, split="test")))[:SHOWN]]
        rows += [load_file(path)["images"][:SHOWN] for path in made]
        write_atomic(HERE / f"pictures-{data}.png", sheet(rows))


def sheet(rows: list[torch.Tensor]) -> bytes:
    """Rows of uint8 pictures as a PNG."""
    table = torch.stack([torch.cat(list(row), dim=2) for row in rows])
    whole = torch.cat(list(table), dim=1).permute(1, 2, 0).numpy()
    large = np.repeat(np.repeat(whole, ZOOM, axis=0), ZOOM, axis=1)
    stream = BytesIO()
    Image.fromarray(large).save(stream, format="PNG", optimize=True)
    return stream.getvalue()
