"""The picture of README.md: lungs as they were drawn, and where a tuned network looks.

    python studies/xrays/figures.py FOLDER runs/xrays

X-rays of the validation part, which judge nothing; the network is `relevance` of the first seed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from lungs import SIDE, dealt, equal_cells, kept
from numpy.typing import NDArray
from PIL import Image
from study import GRID, HALF, SEEDS, Study, lung_shares, relevance

HERE = Path(__file__).parent
SHOWN, SCALE = 4, 3
"""Of each class, and how much larger than the network sees them."""
DRAWN, SEEN = (255, 140, 0), (0, 190, 255)


def outline(mask: NDArray[np.bool_], width: int = 2) -> NDArray[np.bool_]:
    """The pixels of a mask that are near others that are not in it."""
    padded = np.pad(mask, width)
    inner = mask.copy()
    for down in range(2 * width + 1):
        for across in range(2 * width + 1):
            inner &= padded[down : down + mask.shape[0], across : across + mask.shape[1]]
    return mask & ~inner


def main() -> None:
    torch.set_num_threads(1)
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    study = Study(dealt(kept(folder, out / "pictures.npz")), out)
    settings = json.loads((out / "chosen.json").read_text(encoding="utf-8"))
    model = study.tuned("relevance", SEEDS[0], settings).eval()
    given = study.given["validation"]
    rows = np.concatenate([np.flatnonzero(given.labels == label)[:SHOWN] for label in (0, 1)])
    shown = given.take(rows)
    data = shown.data("shown")
    seen = equal_cells(relevance(model, data), (lung_shares(data) > HALF).flatten(1).sum(1))
    tiles = []
    for pixels, lungs, cells in zip(shown.pixels, shown.lungs, seen.numpy(), strict=True):
        side = SIDE * SCALE
        large = np.asarray(Image.fromarray(pixels).resize((side, side), Image.Resampling.BICUBIC))
        tile = np.repeat(large[..., None], 3, axis=2)
        block = np.ones((side // GRID[0], side // GRID[1]), bool)
        tile[outline(np.kron(cells, block))] = SEEN
        tile[outline(np.kron(lungs, np.ones((SCALE, SCALE), bool)))] = DRAWN
        tiles.append(tile)
    halves = [np.concatenate(tiles[i : i + SHOWN], axis=1) for i in (0, SHOWN)]
    Image.fromarray(np.concatenate(halves)).save(HERE / "lungs.webp", quality=80)


if __name__ == "__main__":
    main()
