"""Draws docs/shifts.png: the same objects in three kinds of surroundings, their masks, the domains.

    python docs/shift_sheet.py

CIFAR-10 and Quick, Draw! must have been fetched.
"""

from __future__ import annotations

from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset

TILE, GAP, LABEL = 64, 3, 150
HERE = Path(__file__).parent


def main() -> None:
    """Load, choose one object of each class, lay out, save."""
    plain = {kind: composed(kind, "none") for kind in ("cifar10", "texture", "icons")}
    first = plain["cifar10"]
    classes = range(len(first.classes))
    chosen = [int((first.labels == number).nonzero()[17, 0]) for number in classes]
    rows = [(f"{kind}\nshift none", pixels(data)[chosen]) for kind, data in plain.items()]
    rows.insert(1, ("cifar10\nshift reversed", pixels(composed("cifar10", "reversed"))[chosen]))
    assert first.masks is not None
    mask = first.masks[chosen, None].expand(-1, 3, -1, -1).to(torch.uint8) * 255
    rows.append(("object mask", mask))
    for domain in ("photo", "drawing", "icon"):
        data = load_dataset("domains", domain=domain)
        kinds = range(len(data.classes))
        picked = [int((data.labels == number).nonzero()[0, 0]) for number in kinds]
        rows.append((f"domains\n{domain}", pixels(data)[picked]))
    width = LABEL + len(chosen) * (TILE + GAP)
    sheet = Image.new("RGB", (width, len(rows) * (TILE + GAP)), "white")
    pen = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(13)
    for number, (title, pictures) in enumerate(rows):
        top = number * (TILE + GAP)
        pen.multiline_text((6, top + 14), title, "black", font)
        for column, picture in enumerate(pictures):
            tile = Image.fromarray(picture.permute(1, 2, 0).contiguous().numpy())
            tile = tile.resize((TILE, TILE), Image.Resampling.BICUBIC)
            sheet.paste(tile, (LABEL + column * (TILE + GAP), top))
    sheet.quantize(255).save(HERE / "shifts.png", optimize=True)


def composed(backgrounds: str, shift: str) -> Dataset:
    """Test objects, each in the context that the shift makes certain."""
    return load_dataset("object_on_context", backgrounds=backgrounds, shift=shift, correlation=1.0)


def pixels(data: Dataset) -> Tensor:
    """All pictures of a dataset."""
    return torch.cat([batch.images for batch in data.batches()])


if __name__ == "__main__":
    main()
