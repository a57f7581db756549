"""Forward passes on a processor: as `measure` makes them, and the model as it was loaded.

    OMP_NUM_THREADS=1 python benchmarks/passes_on_cpu.py icons-vit icons-convnext icons-resnet

Pictures per second and CPU milliseconds of each, the best of some rounds in which both take turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

import stockpot
from stockpot.engine import keep_freed_memory
from stockpot.models.classifier import evaluating
from stockpot.models.forward.passes import Passes
from stockpot.models.load import load_for


def timed(run: Callable[[Tensor], Tensor], pixels: Tensor) -> tuple[float, float]:
    """Seconds, and seconds of CPU."""
    wall, cpu = time.perf_counter(), time.process_time()
    run(pixels)
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--images", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=10)
    chosen = parser.parse_args()
    keep_freed_memory()
    data = stockpot.load_dataset("icons", split="test", limit=chosen.images)
    pixels = data.images.pixels
    print(f"{torch.get_num_threads()} threads, {len(pixels)} pictures")
    for name in chosen.models:
        model = load_for(name, data, keep=True).eval()
        passes = Passes(model)
        with evaluating(model):
            ways: dict[str, Callable[[Tensor], Tensor]] = {"model": model, "passes": passes}
            taken = {way: [timed(run, pixels)] for way, run in ways.items()}
            for _ in range(chosen.rounds):
                for way, run in ways.items():
                    taken[way].append(timed(run, pixels))
        for way, found in taken.items():
            wall, cpu = (min(column) for column in zip(*found, strict=True))
            print(f"{name} {way}: {len(pixels) / wall:.0f}/s, {1e3 * cpu / len(pixels):.2f} ms CPU")


if __name__ == "__main__":
    main()
