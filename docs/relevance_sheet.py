"""Draws docs/relevance.png: where three networks of the zoo look in eight test icons.

python docs/relevance_sheet.py
"""

from __future__ import annotations

from pathlib import Path

import torch

from stockpot.datasets.load import load_dataset
from stockpot.explain.overlay import overlay, sheet
from stockpot.explain.run import explain
from stockpot.models.load import load_model

HERE = Path(__file__).parent
COLUMNS = (
    ("icons-vit", "ViT, all blocks", {"layers": "all"}),
    ("icons-vit", "ViT, last block", {"layers": "last"}),
    ("icons-resnet", "ResNet, Grad-CAM", {}),
    ("icons-convnext", "ConvNeXt, Grad-CAM", {}),
)
PICTURES = 8


def main() -> None:
    """Explain the true class, lay the heat over the pictures, save."""
    data = load_dataset("icons", split="test")
    generator = torch.Generator().manual_seed(5)
    classes = torch.randperm(len(data.classes), generator=generator)[:PICTURES].tolist()
    rows = [int((data.labels == label).nonzero()[0]) for label in classes]
    chosen = data.take(rows)
    pixels = torch.cat([batch.images for batch in chosen.batches()]).float() / 255
    columns = [pixels]
    for name, _, options in COLUMNS:
        model = load_model(name)
        labels = torch.tensor([model.classes.index(data.classes[label]) for label in classes])
        columns.append(overlay(pixels, explain(model, pixels, labels, **options)))
    lines = [[column[row] for column in columns] for row in range(PICTURES)]
    titles = ["picture", *(title for _, title, _ in COLUMNS)]
    sheet(lines, titles, zoom=2).save(HERE / "relevance.png", optimize=True)


if __name__ == "__main__":
    main()
