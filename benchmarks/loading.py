"""Images per second of the folder loader against bare Pillow decoding, one run each.

    python benchmarks/loading.py [--images 10000] [--side 64]

Both decode and resize the same PNG files to 56 px. Bare Pillow does it in one thread, one picture
after another, and keeps nothing; the loader also finds, checks and hashes the files (told apart
below), joins the pictures into batches, and uses as many threads as there are cores.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from stockpot.datasets.load import load_dataset

TARGET = (56, 56)


def shrink(picture: Image.Image) -> Image.Image:
    return picture.resize(TARGET, Image.Resampling.BILINEAR)


def write_images(folder: Path, count: int, side: int) -> list[Path]:
    """Smooth random pictures: as large as icons of that size when packed."""
    generator = np.random.default_rng(0)
    paths = []
    for row in range(count):
        coarse = generator.integers(0, 256, (side // 8, side // 8, 3), dtype=np.uint8)
        picture = Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)
        path = folder / f"class-{row % 10}" / f"{row:05d}.png"
        path.parent.mkdir(exist_ok=True)
        picture.save(path)
        paths.append(path)
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--side", type=int, default=64)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        paths = write_images(Path(name), options.images, options.side)
        for path in paths:  # both then read from the same warm page cache
            path.read_bytes()
        start = time.perf_counter()
        for path in paths:
            with Image.open(path) as picture:
                shrink(picture.convert("RGB"))
        bare = options.images / (time.perf_counter() - start)
        start = time.perf_counter()
        data = load_dataset(name)
        opening = time.perf_counter() - start
        start = time.perf_counter()
        seen = sum(len(batch.labels) for batch in data.batches(256, shrink))
        loader = seen / (time.perf_counter() - start)
    print(f"{options.images:,} PNG images of {options.side} px, {os.cpu_count()} cores")
    print(f"bare Pillow, one thread  {bare:9,.0f} images/s")
    print(f"stockpot loader          {loader:9,.0f} images/s   {loader / bare:.2f} x bare")
    print(f"finding, checking, hashing first: {options.images / opening:,.0f} images/s")


if __name__ == "__main__":
    main()
