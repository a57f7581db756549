"""Draws docs/corruptions.jpg: the 19 corruptions at 5 severities, beside the clean picture.

The families that came later are drawn smaller, at severities 1, 3 and 5, and the sequences of
ImageNet-P by their first and last frames and two between.

    python docs/contact_sheet.py

The picture is NASA's portrait of Eileen Collins, which is in the public domain.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from stockpot.corrupt import BENCHMARK, EXTRA, SEVERITIES
from stockpot.corrupt.apply import corrupt
from stockpot.corrupt.ranges import chosen_corruptions
from stockpot.corrupt.sequences.frames import frames
from stockpot.corrupt.sequences.steps import PERTURBATIONS
from stockpot.types import ImageSize

TILE, GAP, LABEL = 92, 3, 132
HERE = Path(__file__).parent


def main() -> None:
    """Corrupt, lay out, save."""
    with np.load(HERE.parent / "tests" / "oracles" / "data" / "corruptions.npz") as file:
        clean = torch.from_numpy(file["images_224"][:1]).permute(0, 3, 1, 2).contiguous()
    draw_nineteen(clean)
    for family in ("imagenet-c-bar", "cifar-10-c-bar", "laion-c,style"):
        draw_later(clean, family)
    draw_sequences(clean)


def draw_later(clean: torch.Tensor, family: str) -> None:
    """Two corruptions side by side in a row, three severities each."""
    names, levels = chosen_corruptions(family), (1, 3, 5)
    tile, width = 84, 3 * 84 + 12
    rows = -(-len(names) // 2)
    sheet = Image.new("RGB", (2 * width, rows * (tile + 20)), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(11)
    for number, name in enumerate(names):
        left, top = number % 2 * width, number // 2 * (tile + 20)
        pen.text((left + 2, top + 3), name, "black", font)
        for column, severity in enumerate(levels):
            made = corrupt(clean, name, severity, seed=12)[0].permute(1, 2, 0)
            picture = Image.fromarray(made.numpy()).resize((tile, tile), Image.Resampling.LANCZOS)
            sheet.paste(picture, (left + column * (tile + 2), top + 18))
    sheet.save(HERE / f"{family.partition(',')[0]}.jpg", quality=82, optimize=True)


def draw_sequences(clean: torch.Tensor) -> None:
    """Two sequences side by side in a row, four frames each."""
    tile, width = 72, 4 * 74 + 12
    rows = -(-len(PERTURBATIONS) // 2)
    sheet = Image.new("RGB", (2 * width, rows * (tile + 20)), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(11)
    for number, name in enumerate(PERTURBATIONS):
        left, top = number % 2 * width, number // 2 * (tile + 20)
        pen.text((left + 2, top + 3), name, "black", font)
        shown = [frame[0] for frame in frames(clean, name, side=ImageSize(192, 192), seed=[12])]
        last = len(shown) - 1
        for column, at in enumerate((0, last // 3, 2 * last // 3, last)):
            picture = Image.fromarray(shown[at].permute(1, 2, 0).numpy())
            picture = picture.resize((tile, tile), Image.Resampling.LANCZOS)
            sheet.paste(picture, (left + column * (tile + 2), top + 18))
    sheet.save(HERE / "imagenet-p.jpg", quality=78, optimize=True)


def draw_nineteen(clean: torch.Tensor) -> None:
    """The sheet of ImageNet-C."""
    names = BENCHMARK + EXTRA
    width = LABEL + (len(SEVERITIES) + 1) * (TILE + GAP)
    sheet = Image.new("RGB", (width, 24 + len(names) * (TILE + GAP)), "white")
    pen = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(13)
    for column, title in enumerate(("clean", *(f"severity {s}" for s in SEVERITIES))):
        pen.text((LABEL + column * (TILE + GAP) + 2, 4), title, "black", font)
    for row, name in enumerate(names):
        top = 24 + row * (TILE + GAP)
        text = name.replace("_", "\n") + ("" if name in BENCHMARK else "\n(extra)")
        pen.multiline_text((6, top + 18), text, "black", font)
        pictures = [clean, *(corrupt(clean, name, severity, seed=12) for severity in SEVERITIES)]
        for column, picture in enumerate(pictures):
            tile = Image.fromarray(picture[0].permute(1, 2, 0).numpy())
            tile = tile.resize((TILE, TILE), Image.Resampling.LANCZOS)
            sheet.paste(tile, (LABEL + column * (TILE + GAP), top))
    sheet.save(HERE / "corruptions.jpg", quality=84, optimize=True)


if __name__ == "__main__":
    main()
