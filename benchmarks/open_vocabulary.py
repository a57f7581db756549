"""Evaluating fused models on five tasks against the bare forward passes.

    python benchmarks/open_vocabulary.py                     # zoo pool, 1000 images per task
    python benchmarks/open_vocabulary.py --size b32 --images 64 --models 2
    python benchmarks/open_vocabulary.py --device cuda --images 10000 --models 10

`stockpot.measure` is called as a user calls it, with all new models at once: finding their
identities, loading them, five heads each, predictions, scores with intervals, and result files. The
bare passes run the same classifiers on the same batches and keep nothing: once as transformers has
them, and once as the measure runs them (same precision; on a GPU the same graph). The heads of a
vocabulary are made for the first model and reused by those that share its text tower.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch

from parts.synthetic_pool import CLIPS, clip_pool
from stockpot.datasets.dataset import Dataset, TensorImages, pixel_fingerprint
from stockpot.engine import pick_device
from stockpot.fuse.run import fuse
from stockpot.measure.run import measure
from stockpot.models.forward.options import chosen_forward
from stockpot.models.forward.passes import Passes
from stockpot.models.load import load_model

TASKS = {"ten": 10, "hundred": 100, "digits": 10, "sketches": 345, "icons": 50}


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


def bare(
    folder: Path, tasks: list[Dataset], device: torch.device, batch_size: int, fast: bool
) -> float:
    """Seconds of all passes of one model; with `fast`, as the measure makes them."""
    model = load_model(folder, classes=tasks[0].classes).to(device).eval()
    run = Passes(model, chosen_forward("auto", False, device), batch_size) if fast else model
    with torch.inference_mode():
        run(next(iter(tasks[0].batches(batch_size))).images.to(device))
        _wait(device)
        start = clock(device)
        for data in tasks:
            for batch in data.batches(batch_size):
                run(batch.images.to(device))
        _wait(device)
    return clock(device) - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=CLIPS, default="zoo")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--models", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    device = pick_device(options.device)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        base, *experts = clip_pool(folder, options.size, 3)
        tasks = [
            task(word, classes, options.images, CLIPS[options.size][0])
            for word, classes in TASKS.items()
        ]
        run = {"device": str(device), "batch_size": options.batch_size, "out": folder / "run"}
        start = clock(device)
        measure({"base": base}, "clean", data=tasks, **run)
        first = clock(device) - start
        fused = {
            f"fused {turn}": fuse(
                "task_arithmetic", experts, base=base, out=folder / f"f{turn}", scale=0.1 + turn
            )
            for turn in range(options.models)
        }
        plain, fast = (
            bare(fused["fused 0"], tasks, device, options.batch_size, way) for way in (False, True)
        )
        start = clock(device)
        results = measure(fused, "clean", data=tasks, **run)
        ours = (clock(device) - start) / options.models
        stages: dict[str, float] = {}
        for result in results:
            for stage, seconds in result.cost.stages.items():
                stages[stage] = stages.get(stage, 0.0) + seconds / options.models
    print(f"{options.size}, {options.images} images x {len(tasks)} tasks, {device}")
    print(f"bare passes as they are    {plain:8.2f} s")
    print(f"bare passes of the measure {fast:8.2f} s")
    print(f"first model, with heads    {first:8.2f} s")
    print(f"each of {options.models} further models  {ours:8.2f} s")
    print(f"ratio to the passes as they are    {ours / plain:6.2f}   (at most 1.2 wanted)")
    print(f"ratio to the passes of the measure {ours / fast:6.2f}")
    for stage, seconds in stages.items():
        print(f"  {stage:10s} {seconds:8.3f} s a model")


if __name__ == "__main__":
    main()
