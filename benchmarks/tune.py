"""Merges an hour of `stockpot tune`, beside the forward passes that it cannot do without.

    python benchmarks/tune.py                              # three trials, and what 200 would take
    python benchmarks/tune.py --trials 200 --prune racing
    python benchmarks/tune.py --limit 2000                 # all validation images of the tasks

The search sees 400 validation images of each task of the embedded CLIP pool that is on this machine
(icons always is; with all five it is that of studies/clip_fusion). Runs the command itself. The
floor is the validation images through transformers' own CLIP, 256 at a time, once before and once
after: by its least time in the same run a trial is judged. `processor` counts the seconds of all
cores, which other work on the machine does not change much; the others are those of a clock.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import torch

import stockpot
from parts.stages import print_each, profiled_stages
from parts.tasks import tasks_here
from parts.watched import STOCKPOT, watch
from stockpot.models.load import load_for

MEMBERS = ["clip-cifar10", "clip-mnist", "clip-fashion", "clip-quickdraw", "clip-icons"]


def floor(tasks: list[str], limit: int) -> tuple[float, float]:
    """Seconds of a clock and of a processor for all validation images, bare passes alone."""
    clock = work = 0.0
    for task in tasks:
        data = stockpot.load_dataset(task, split="val").limited(limit)
        model = load_for("clip-base", data).eval()
        with torch.inference_mode():
            for batch in data.batches(256):
                pixels = model.seen(batch.images)
                begun, used = time.perf_counter(), time.process_time()
                model.network(pixels)
                clock += time.perf_counter() - begun
                work += time.process_time() - used
    return clock, work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--limit", type=int, default=400, help="validation images of each task")
    parser.add_argument("--prune", default="none")
    parser.add_argument("--sampler", default="tpe")
    given = parser.parse_args()
    tasks = tasks_here()
    before = floor(tasks, given.limit)
    with tempfile.TemporaryDirectory() as folder:
        words = [*STOCKPOT, "tune", "task_arithmetic", *MEMBERS, "--base", "clip-base",
                 *(word for task in tasks for word in ("--data", task)),
                 "--trials", str(given.trials), "--limit", str(given.limit),
                 "--prune", given.prune, "--sampler", given.sampler, "--no-test",
                 "-o", folder, "--profile", f"{folder}/trace.json"]  # fmt: skip
        cost = watch(words)
        told = json.loads((Path(folder) / "tune.json").read_text(encoding="utf-8"))
        stages = profiled_stages(Path(folder) / "trace.json")
    clock, work = cost.seconds, cost.cpu
    least = [min(pair) for pair in zip(before, floor(tasks, given.limit), strict=True)]
    inside = sum(trial["seconds"] for trial in told["trials"])
    print(f"{given.trials} trials of {told['images']:,} images of {', '.join(tasks)}, "
          f"prune {given.prune}, {torch.get_num_threads()} threads")  # fmt: skip
    print(f"stockpot tune: clock {clock:.0f} s, {3600 * given.trials / clock:.0f} merges an hour; "
          f"processor {work:.0f} s; in trials {inside:.0f} s; 200 trials by these "
          f"{(clock - inside + 200 / given.trials * inside) / 60:.0f} minutes")  # fmt: skip
    print(f"floor {least[0]:.1f} s of a clock and {least[1]:.1f} s of a processor for a trial; "
          f"ratio {inside / given.trials / least[0]:.2f} by the clock, "
          f"{work / given.trials / least[1]:.2f} by the processor, start included")  # fmt: skip
    print_each(stages, least[0] * given.trials, f"floor of {given.trials} trials")


if __name__ == "__main__":
    main()
