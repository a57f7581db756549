"""Draws docs/surface-*.png: for each protocol, what is trained on and what is held out.

python docs/surface_sheet.py
"""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset

TILE, GAP, LABEL, ACROSS = 40, 2, 92, 16
HERE = Path(__file__).parent
PROTOCOLS = {
    "style": {"protocol": "style", "hold_out": "fluent"},
    "subtype": {"protocol": "subtype", "hold_out": 50},
    "version": {"protocol": "version", "hold_out": "noto"},
}


def main() -> None:
    """One sheet for each protocol: pictures of a class side by side, training above, test below."""
    for name, asked in PROTOCOLS.items():
        sides = {side: load_dataset("icons", split=side, **asked) for side in ("train", "test")}
        classes = most_tested(sides["test"])
        sheet = Image.new("RGB", (LABEL + ACROSS * (TILE + GAP), 6 * (2 * TILE + 8)), "white")
        pen = ImageDraw.Draw(sheet)
        for row, label in enumerate(classes):
            top = row * (2 * TILE + 8)
            for line, (side, data) in enumerate(sides.items()):
                place = top + line * (TILE + GAP)
                said = data.classes[label] if line == 0 else ""
                text = f"{said}\n{side}"
                pen.multiline_text((4, place + 4), text, "black", ImageFont.load_default(11))
                rows = [r for r, found in enumerate(data.labels.tolist()) if found == label]
                step = max(1, len(rows) // ACROSS)
                for column, batch in enumerate(data.take(rows[::step][:ACROSS]).batches(1)):
                    tile = Image.fromarray(batch.images[0].permute(1, 2, 0).numpy())
                    tile = tile.resize((TILE, TILE), Image.Resampling.BICUBIC)
                    sheet.paste(tile, (LABEL + column * (TILE + GAP), place))
        sheet.quantize(96).save(HERE / f"surface-{name}.png", optimize=True)


def most_tested(test: Dataset) -> list[int]:
    """Six classes with held-out pictures, spread over the list."""
    there = sorted(set(test.labels.tolist()))
    return [there[place * (len(there) - 1) // 5] for place in range(6)]


if __name__ == "__main__":
    main()
