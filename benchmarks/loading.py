"""Pictures per second of `stockpot.measure` from files, against bare Pillow on the same cores.

    python benchmarks/loading.py [--images 1000] [--side 500x375] [--kind jpg] [--keep FOLDER]

The floor is a pool of as many threads as this process may use cores, which decode and resize the
same files as a model of 224 px wants them, and keep nothing. The product is `stockpot.measure` of a
network that does almost nothing: opening the folder (finding, checking, hashing), decoding,
batches, scores. Then once more, as a second model would: pictures are decoded already. The stages
of both are shares of the same floor, taken in the same run.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import stockpot
from parts.stages import print_stages
from stockpot.engine.cores import usable_cores
from stockpot.models.classifier import Classifier, Origin
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize

CLASSES = 10
SIDE = 224
SEEN = Preprocess(ImageSize(SIDE, SIDE), 256)


class Glance(nn.Module):
    """Looks at one pixel: the least that a model can do."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, CLASSES)

    def forward(self, pixels: Tensor) -> Tensor:
        result: Tensor = self.head(pixels[:, :, 0, 0])
        return result


def write_image(task: tuple[Path, int, int, int]) -> None:
    """A smooth random picture with fine grain: as large as a photograph of that size."""
    path, row, width, height = task
    generator = np.random.default_rng(row)
    coarse = generator.integers(0, 256, (height // 12, width // 12, 3), dtype=np.uint8)
    smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    grain = generator.normal(0, 12, (height, width, 3))
    pixels = np.clip(np.asarray(smooth) + grain, 0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(path, quality=90)


def write_images(folder: Path, count: int, width: int, height: int, kind: str) -> list[Path]:
    """Pictures in class folders, made by all cores; those that are there already are taken."""
    paths = [folder / f"class-{row % CLASSES}" / f"{row:05d}.{kind}" for row in range(count)]
    for path in paths[:CLASSES]:
        path.parent.mkdir(parents=True, exist_ok=True)
    missing = [(path, row, width, height) for row, path in enumerate(paths) if not path.is_file()]
    with ProcessPoolExecutor(usable_cores()) as workers:
        list(workers.map(write_image, missing, chunksize=64))
    return paths


def bare(path: Path) -> None:
    with Image.open(path) as picture:
        wide = SEEN.geometry.target(ImageSize(picture.height, picture.width))
        left, top = (wide.width - SIDE) // 2, (wide.height - SIDE) // 2
        whole = picture.convert("RGB").resize((wide.width, wide.height), Image.Resampling.BICUBIC)
        whole.crop((left, top, left + SIDE, top + SIDE))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--images", type=int, default=1_000)
    parser.add_argument("--side", default="500x375", help="WIDTHxHEIGHT")
    parser.add_argument("--kind", default="jpg", choices=["jpg", "png"])
    parser.add_argument("--keep", type=Path, help="where the pictures stay for the next time")
    options = parser.parse_args()
    width, height = map(int, options.side.split("x"))
    cores = usable_cores()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["STOCKPOT_CACHE"] = f"{scratch}/cache"
        folder = options.keep or Path(scratch) / "photos"
        paths = write_images(folder, options.images, width, height, options.kind)
        for path in paths:  # both then read from the same warm page cache
            path.read_bytes()
        time.sleep(2.1)  # files that were written this moment are not remembered
        start = time.perf_counter()
        with ThreadPoolExecutor(cores) as threads:
            list(threads.map(bare, paths, chunksize=16))
        floor = time.perf_counter() - start
        torch.manual_seed(0)
        names = tuple(f"class-{number}" for number in range(CLASSES))
        model = Classifier(Glance(), SEEN, names, Origin("glance", "Glance", ""))
        seconds, results = {}, {}
        for name in ("first", "again"):
            start = time.perf_counter()
            results[name] = stockpot.measure({name: model}, "clean", data=str(folder), device="cpu")
            seconds[name] = time.perf_counter() - start
        start = time.perf_counter()
        stockpot.load_dataset(str(folder))
        opened = time.perf_counter() - start
    count = options.images
    print(f"{count:,} {options.kind} files of {width} x {height}, {cores} cores, seen at 224 px")
    print(f"bare Pillow, {cores} threads        {floor:7.2f} s {count / floor:9,.0f} images/s")
    for name, text in (("first", "stockpot.measure"), ("again", "the next model")):
        took = seconds[name]
        print(f"{text:29s}{took:7.2f} s {count / took:9,.0f} images/s  {took / floor:.2f} x floor")
        print_stages(results[name], floor, "floor")
    print(f"opening a folder that is remembered: {opened:.2f} s")


if __name__ == "__main__":
    main()
