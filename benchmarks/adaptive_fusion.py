"""`stockpot fuse` with methods that learn from images, against passes of one model.

    python benchmarks/adaptive_fusion.py                      # the zoo's CLIP and its five experts
    python benchmarks/adaptive_fusion.py --methods wemoe,regmean,esm,fisher
    python benchmarks/adaptive_fusion.py --methods adamerging,concrete -p together=5
    python benchmarks/adaptive_fusion.py --family b32 --device cuda --steps 20,120 --repeats 3

Runs the command itself, each time as a process of its own, with two numbers of steps: the slope is
what a step costs (images drawn, mix formed, one batch of every task forward and back, coefficients
moved), and what is left at no steps is the start: imports, models, data, and the model written. Of
methods that take no steps (`regmean`, `esm`, `fisher`) a step is one batch of every task that they
look at. The floor is one model forward and backward on as many images in the same batches, which
lie on the device already; it is taken before and after, and the lesser one counts. A CPU is timed
by the seconds of its processor, whatever else the machine does, a GPU by the clock. Beside the peak
of the process's private memory stands what `--plan` says. The five larger members (`--family b32`)
have random weights: time and memory do not depend on them, nor on the pictures, so that a task
whose pictures are not on this machine has those of icons instead.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

import stockpot
from parts.stages import print_each, recorded_stages
from parts.synthetic_pool import clip_pool
from parts.tasks import tasks_here
from parts.watched import STOCKPOT, Cost, line, now, two, watch
from stockpot.foreign import read_value
from stockpot.fuse import fusers
from stockpot.fuse.adaptive.entropy import entropy
from stockpot.fuse.run import plan
from stockpot.models.load import load_for

EXPERTS = ("clip-cifar10", "clip-mnist", "clip-fashion", "clip-quickdraw", "clip-icons")
TASKS = ("cifar10", "mnist", "fashion_mnist", "quickdraw", "icons")


def floor(base: str, tasks: list[str], batch: int, device: str) -> Callable[[], float]:
    """Takes the seconds of one model forward and backward on one batch of every task."""
    sets = [stockpot.load_dataset(task) for task in tasks]
    model = load_for(base, sets[0], device=device).eval().requires_grad_(False)
    model.network.vision_tower.requires_grad_(True)
    fit = model.preprocess.fit
    batches = [next(iter(data.batches(batch, fit))).images.to(device) for data in sets]

    def step() -> None:
        for pixels in batches:
            entropy(model(pixels)).backward()  # type: ignore[no-untyped-call]

    def taken() -> float:
        step()
        begin = now(device)
        for _ in range(3):
            step()
        return (now(device) - begin) / 3

    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--family", choices=["zoo", "b32"], default="zoo")
    parser.add_argument("--methods", default="adamerging,concrete")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=two, default="2,10", help="two numbers of steps")
    parser.add_argument("--batch", type=int, default=16, help="images of each task in a step")
    parser.add_argument("--repeats", type=int, default=1, help="of each command; the least counts")
    parser.add_argument("-p", dest="params", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--work", type=Path, help="where models are written")
    given = parser.parse_args()
    here = tasks_here()
    tasks = [task if task in here else "icons" for task in TASKS]
    with tempfile.TemporaryDirectory(dir=given.work) as name:
        folder = Path(name)
        base, *members = ["clip-base", *EXPERTS]
        if given.family != "zoo":
            base, *members = map(str, clip_pool(folder, given.family, len(TASKS)))
        bare = floor(base, tasks, given.batch, given.device)
        least = bare()
        rows = [(method, *ours(method, base, members, tasks, folder / "out", given))
                for method in given.methods.split(",")]  # fmt: skip
        least = min(least, bare())
    clock = "processor" if given.device == "cpu" else "clock"
    print(f"{given.family}, {len(members)} members, {len(TASKS)} x {given.batch} images a step, "
          f"{given.device}, torch {torch.__version__}, {torch.get_num_threads()} threads, "
          f"seconds of the {clock}")  # fmt: skip
    print(f"one model forward and backward on the images of a step: {1000 * least:.0f} ms")
    for method, step, once, cost, planned, stages in rows:
        held = cost.private_mb if given.device == "cpu" else cost.device_mb
        name = " ".join([method, *given.params])
        print(f"stockpot fuse {name}: {1000 * step:.0f} ms a step, "
              f"{step / least:.2f} of the floor; start {once:.1f} s; peak {held:.0f} MB, where "
              f"--plan says {planned:.0f} MB")  # fmt: skip
        print_each(stages, least * given.steps[1], f"floor of {given.steps[1]} steps")


def ours(
    method: str,
    base: str,
    members: list[str],
    tasks: list[str],
    out: Path,
    given: argparse.Namespace,
) -> tuple[float, float, Cost, float, dict[str, float]]:
    """Seconds of a step and of the start; of the longer run its costs, the plan's megabytes, and
    what its record says of its time.
    """
    known = fusers.get(method).schema.model_fields
    command = [*STOCKPOT, "fuse", method, *members, "--base", base]
    command += ["-o", str(out), "--device", given.device]
    command += [word for task in tasks for word in ("--task", task)]
    for text in (f"batch_size={given.batch}", *given.params):
        command += ["-p", text]
    best: list[Cost] = []
    for steps in given.steps:
        found = []
        for _ in range(given.repeats):
            many = f"steps={steps}" if "steps" in known else f"examples={given.batch * steps}"
            found.append(watch([*command, "-p", many], device=given.device))
            stages = recorded_stages(out)
            shutil.rmtree(out)
        best.append(min(found, key=lambda cost: cost.spent(given.device)))
    few, many = (cost.spent(given.device) for cost in best)
    step, once = line(given.steps, (few, many))
    pairs = (text.partition("=") for text in given.params)
    asked: dict[str, object] = {"batch_size": given.batch} | {
        key: read_value(value) for key, _, value in pairs
    }
    said = plan(method, members, base=base, tasks=tasks, device=given.device, **asked)
    planned = said.peak_bytes / 1e6
    return step, once, best[1], planned, stages


if __name__ == "__main__":
    main()
