"""`stockpot.measure` of fused models on five tasks, against the bare forward passes.

    python benchmarks/open_vocabulary.py                     # zoo pool, 200 images per task
    python benchmarks/open_vocabulary.py --size b32 --images 64 --models 2
    python benchmarks/open_vocabulary.py --device cuda --images 10000 --models 10

It is called as a user calls it, with all new models at once: finding their identities, loading
them, five heads each, predictions, scores with intervals, and result files. The floor is bare
passes of the same classifiers on the same batches, which keep nothing: once as transformers has
them, and once as the measure runs them (same precision; on a GPU the same graph). The heads of a
vocabulary are made for the first model and reused by those that share its text tower. CPU time is
taken on a CPU, which others share, and the time of day on a GPU; stages are by the clock.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

import stockpot
from parts.bare import Seconds, asked, least, timed
from parts.stages import print_stages
from parts.synthetic_pool import CLIPS, clip_pool
from stockpot.datasets.dataset import Dataset, TensorImages, pixel_fingerprint
from stockpot.engine import keep_freed_memory, pick_device
from stockpot.models.forward.options import chosen_forward
from stockpot.models.forward.passes import Passes

TASKS = {"ten": 10, "hundred": 100, "digits": 10, "sketches": 345, "icons": 50}


def task(name: str, classes: int, n: int, side: int) -> Dataset:
    generator = torch.Generator().manual_seed(len(name))
    pixels = torch.randint(0, 256, (n, 3, side, side), generator=generator).to(torch.uint8)
    labels = torch.randint(0, classes, (n,), generator=generator)
    names = tuple(f"{name} {index}" for index in range(classes))
    mark = pixel_fingerprint(pixels, labels, names)
    return Dataset(name, "test", TensorImages(pixels), labels, names, mark)


def bare(
    folder: Path, tasks: list[Dataset], device: str, batch_size: int, *, fast: bool
) -> Seconds:
    """All passes of one model; with `fast`, as the measure makes them."""
    model = stockpot.load_model(folder, classes=tasks[0].classes).to(device).eval()
    way = chosen_forward("auto", False, torch.device(device))
    run: Callable[[Tensor], Tensor] = Passes(model, way, batch_size) if fast else model

    def passes() -> None:
        asked(run, (b.images.to(device) for data in tasks for b in data.batches(batch_size)))

    return least(passes, device, rounds=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", choices=CLIPS, default="zoo")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--models", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    device = str(pick_device(options.device))
    keep_freed_memory()  # as `measure` does: the floor has it too
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        base, *experts = clip_pool(folder, options.size, 3)
        side = CLIPS[options.size][0]
        tasks = [task(word, classes, options.images, side) for word, classes in TASKS.items()]
        measured = partial(
            stockpot.measure, measures="clean", data=tasks, device=device,
            batch_size=options.batch_size, out=folder / "run",
        )  # fmt: skip
        first, opened = timed(partial(measured, {"base": base}), device)
        fused = {
            f"fused {turn}": stockpot.fuse(
                "task_arithmetic", experts, base=base, out=folder / f"f{turn}", scale=0.1 + turn
            )
            for turn in range(options.models)
        }
        plain, fast = (
            bare(fused["fused 0"], tasks, device, options.batch_size, fast=way)
            for way in (False, True)
        )
        all_of_them, results = timed(partial(measured, fused), device)
    each = all_of_them.times(1 / options.models)
    print(f"{options.size}, {options.images} images x {len(tasks)} tasks, {device}")
    print(f"{'':28s} {'':8s}     of the passes as they are, of those of the measure")
    for what, took in (
        ("bare passes as they are", plain),
        ("bare passes of the measure", fast),
        ("first model, with heads", first),
        (f"each of {options.models} further models", each),
    ):
        print(f"{what:28s} {took.spent:8.2f} s   {took.spent / plain.spent:5.2f}   "
              f"{took.spent / fast.spent:5.2f}")  # fmt: skip
    print("(at most 1.2 of the passes as they are is wanted for further models)")
    print("the first model:")
    print_stages(opened, plain.clock, "passes as they are")
    print(f"the {options.models} further ones:")
    print_stages(results, plain.clock * options.models, "passes as they are")


if __name__ == "__main__":
    main()
