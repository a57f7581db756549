"""Evaluating a fused model on five tasks against the bare forward passes.

    python benchmarks/open_vocabulary.py                     # zoo pool, 1000 images per task
    python benchmarks/open_vocabulary.py --size b32 --images 64
    python benchmarks/open_vocabulary.py --device cuda --images 10000

The bare passes run the same classifier on the same batches and keep nothing. Ours, for each new
model on five tasks of different classes: finding its identity, loading it, five heads, predictions,
scores with intervals, and a result file each. Both are taken in turns. The heads of a vocabulary
are made for the first model and reused by those that share its text tower, as in a run.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch

from stockpot.datasets.dataset import Dataset, TensorImages, pixel_fingerprint
from stockpot.datasets.words.words import plain_words
from stockpot.engine import pick_device
from stockpot.fuse.run import fuse
from stockpot.measure.run import measure
from stockpot.models.dual_encoder import new_dual_encoder
from stockpot.models.load import load_model
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize

SIZES: dict[str, tuple[int, dict[str, int], dict[str, int]]] = {
    "zoo": (64, {"patch_size": 8, "hidden_size": 160, "intermediate_size": 480,
                 "num_hidden_layers": 6, "num_attention_heads": 5},
            {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 2,
             "num_attention_heads": 4}),
    "b32": (224, {"patch_size": 32}, {}),
}  # fmt: skip
TASKS = {"ten": 10, "hundred": 100, "digits": 10, "sketches": 345, "icons": 50}


def pool(folder: Path, size: str) -> list[Path]:
    """A CLIP of random weights and three experts near it: for time, not for accuracy."""
    side, vision, text = SIZES[size]
    words = plain_words(("thing",), ("a photo of a {}.",)).prompts
    square = Preprocess(ImageSize(side, side), ImageSize(side, side))
    base = folder / "base"
    new_dual_encoder(base, prompts=words, preprocess=square, seed=0, vision=vision, text=text)
    experts = []
    for seed in range(3):
        model = load_model(base, classes=("thing",))
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.network.vision_tower.parameters():
                parameter.add_(0.01 * torch.randn(parameter.shape, generator=generator))
        experts.append(model.save(folder / f"expert{seed}"))
    return [base, *experts]


def task(name: str, classes: int, n: int, side: int) -> Dataset:
    generator = torch.Generator().manual_seed(len(name))
    pixels = torch.randint(0, 256, (n, 3, side, side), generator=generator).to(torch.uint8)
    labels = torch.randint(0, classes, (n,), generator=generator)
    names = tuple(f"{name} {index}" for index in range(classes))
    mark = pixel_fingerprint(pixels, labels, names)
    return Dataset(name, "test", TensorImages(pixels), labels, names, mark)


def clock(device: torch.device) -> float:
    """CPU time on a CPU, which others share; the time of day where a GPU does the work."""
    return time.process_time() if device.type == "cpu" else time.perf_counter()


def bare(folder: Path, tasks: list[Dataset], device: torch.device, batch_size: int) -> float:
    model = load_model(folder, classes=tasks[0].classes).to(device).eval()
    start = clock(device)
    with torch.inference_mode():
        for data in tasks:
            for batch in data.batches(batch_size):
                model(batch.images.to(device))
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock(device) - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="zoo")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    device = pick_device(options.device)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        base, *experts = pool(folder, options.size)
        tasks = [
            task(word, classes, options.images, SIZES[options.size][0])
            for word, classes in TASKS.items()
        ]
        run = {"device": str(device), "batch_size": options.batch_size, "out": folder / "run"}
        start = clock(device)
        measure({"base": base}, "clean", data=tasks, **run)
        first = clock(device) - start
        floor, ours = [], []
        for turn in range(options.repeats):
            fused = fuse(
                "task_arithmetic", experts, base=base, out=folder / f"f{turn}", scale=0.1 + turn
            )
            floor.append(bare(fused, tasks, device, options.batch_size))
            start = clock(device)
            measure({f"fused {turn}": fused}, "clean", data=tasks, **run)
            ours.append(clock(device) - start)
    ratio = statistics.median(mine / least for mine, least in zip(ours, floor, strict=True))
    print(f"{options.size}, {options.images} images x {len(tasks)} tasks, {device}")
    print(f"bare forward passes      {statistics.median(floor):8.2f} s")
    print(f"first model, with heads  {first:8.2f} s")
    print(f"each further model       {statistics.median(ours):8.2f} s")
    print(f"ratio                    {ratio:8.2f}   (at most 1.2 wanted)")


if __name__ == "__main__":
    main()
