"""Many models on a device that takes time and nothing else: what is done beside their passes.

    python benchmarks/joining.py
    python benchmarks/joining.py --rate 11300 --model vit-b16 --models 6

`stockpot.measure` is called with new models of random weights and small pictures that are in
memory already. Nobody makes passes: a queue is busy for as long as a GPU of so many images per
second would be, and Python may be two batches ahead of it. What is left above the passes is what a
run does while that GPU waits: loading, statistics, result files. It is printed for models that are
all loaded first and go in step, and for models that join those that are under way. The machine
should have little else to do; of several turns the best counts.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import torch

from parts.photographs import NETWORKS, checkpoints
from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.measure.run import measure
from stockpot.models.forward.passes import Passes

TOGETHER = "stockpot.measure.together"
BATCH = 512


class Queue:
    """A device that is busy, of which Python is at most two batches ahead."""

    def __init__(self, rate: float) -> None:
        self._each, self._free = 1 / rate, 0.0

    def pass_over(self, passes: Passes, pixels: torch.Tensor) -> torch.Tensor:
        taken = len(pixels) * self._each
        now = time.perf_counter()
        self._free = max(self._free, now) + taken
        time.sleep(max(0.0, self._free - 2 * taken - now))
        return torch.zeros(len(pixels), len(passes.model.classes))


def turn(models: list[Path], data: Dataset, rate: float, *, joins: bool) -> tuple[float, Counter]:  # type: ignore[type-arg]
    """Seconds of a run, and where they went."""
    queue = Queue(rate)
    with (
        tempfile.TemporaryDirectory() as out,
        patch(f"{TOGETHER}.arriving.loads_beside", lambda device: joins),
        patch(f"{TOGETHER}.loading.loads_beside", lambda device: joins),
        patch(f"{TOGETHER}.group.picture_room", lambda device: 2**31 if joins else 0),
        patch.object(Passes, "__call__", lambda self, pixels: queue.pass_over(self, pixels)),
    ):
        start = time.perf_counter()
        results = measure(models, "clean", data=data, out=out, batch_size=BATCH)
        seconds = time.perf_counter() - start
    stages: Counter[str] = Counter()
    for result in results:
        stages.update(result.cost.stages)
    return seconds, stages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="resnet50", choices=NETWORKS)
    parser.add_argument("--models", type=int, default=10)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=26_000, help="images/s of the device")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    labels = torch.arange(options.images) % 10
    names = tuple(f"class{number:03d}" for number in range(10))
    pixels = torch.zeros(options.images, 3, 8, 8, dtype=torch.uint8)
    data = Dataset("pictures", "all", TensorImages(pixels), labels, names, "f" * 64)
    with tempfile.TemporaryDirectory() as folder, patch("parts.photographs.CLASSES", names):
        first, *models = checkpoints(Path(folder), options.model, options.models + 1)
        measure(first, "clean", data=data[:16], batch_size=16)  # what is loaded once
        floor = options.models * options.images / options.rate
        print(
            f"{options.models} x {options.model}, {options.images} pictures: passes {floor:.2f} s"
        )
        for name, joins in (("all loaded first", False), ("as they are loaded", True)):
            found = [turn(models, data, options.rate, joins=joins) for _ in range(options.turns)]
            seconds, stages = min(found, key=lambda each: each[0])
            told = ", ".join(f"{stage} {spent:.2f}" for stage, spent in stages.items())
            print(f"{name:20s} {seconds:6.2f} s, {seconds / floor:.2f} of the passes ({told})")


if __name__ == "__main__":
    main()
