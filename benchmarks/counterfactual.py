"""`stockpot.harden` with `counterfactual` against `vanilla`: a step, and what comes once.

    python benchmarks/counterfactual.py                               # the zoo's CLIP, 64 px
    python benchmarks/counterfactual.py --family b16 --device cuda --precision bf16 --steps 10,60

Calls the public function as a user does, which saves nothing without `out`: data and model are
loaded, the model is trained for one epoch of so many steps (augmentation, forward, backward,
clipping and AdamW), and is given back. Each method is called with two numbers of steps: the slope
is a step, the rest comes once. The floor is a vanilla step of the same run; vanilla and each method
are taken in turns, so that they meet the same machine, and the figure is the median of the ratios
(of processor time on a CPU). Wanted are at most 3.2. Time does not depend on the weights, but the
share of masked patches may, which only matters for fill=none.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import torch

import stockpot
from parts.stages import print_each
from parts.synthetic_pool import clip_pool
from parts.watched import Line, line, now, two
from stockpot.datasets.dataset import Dataset
from stockpot.stages import timed

METHODS: dict[str, dict[str, str]] = {
    "no mask": {"mask": "none"},
    **{
        f"{mask} + {fill}": {"mask": mask, "fill": fill}
        for mask in ("random", "context", "object")
        for fill in ("none", "single", "multi")
    },
    "object + multi (other class)": {"mask": "object", "fill": "multi", "source": "other_class"},
}


class Taken(NamedTuple):
    """What a step of a method takes, what comes once, and where the longer training's time went."""

    seconds: Line
    stages: dict[str, float]


def trained(
    method: str, model: str, data: Dataset, given: argparse.Namespace, **params: Any
) -> Taken:
    """Train for both numbers of steps."""
    spent = []
    for steps in given.steps:
        part = data.take([row % len(data) for row in range(steps * given.batch)])
        begin = now(given.device)
        with timed() as clock:
            stockpot.harden(method, model, part, epochs=1, batch_size=given.batch, lr=1e-6,
                            precision=given.precision, device=given.device, **params)  # fmt: skip
            stages = clock.taken()
        spent.append(now(given.device) - begin)
    return Taken(line(given.steps, (spent[0], spent[1])), stages)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--family", choices=["zoo", "b16"], default="zoo")
    parser.add_argument("--data", default="icons", help="its train split; resized to the model's")
    parser.add_argument("--methods", default=",".join(METHODS), help="those with these names")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=two, default="1,4", help="two numbers of steps")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--repeats", type=int, default=1, help="in turns with vanilla")
    given = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # a run that is cut short has said what it knew
    data = stockpot.load_dataset(given.data, split="train")
    print(f"{given.family}, {given.data}, batch {given.batch}, {given.precision}, {given.device}, "
          f"torch {torch.__version__}, {torch.get_num_threads()} threads")  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        model = "clip-base"
        if given.family != "zoo":
            model = str(clip_pool(Path(name), given.family, 0)[0])
        trained("vanilla", model, data, given)  # what the process needs once, such as imports
        print(f"{'stockpot.harden':36} {'ms a step':>10} {'x vanilla':>10} {'once, s':>8}")
        for label, params in METHODS.items():
            if label not in given.methods.split(","):
                continue
            pairs = [
                (trained("vanilla", model, data, given),
                 trained("counterfactual", model, data, given, **params))
                for _ in range(given.repeats)
            ]  # fmt: skip
            for shown, found in zip(("vanilla", label), zip(*pairs, strict=True), strict=True):
                ratio = statistics.median(
                    one.seconds.slope / plain.seconds.slope
                    for one, (plain, _) in zip(found, pairs, strict=True)
                )
                step = 1000 * statistics.median(one.seconds.slope for one in found)
                once = statistics.median(one.seconds.once for one in found)
                print(f"{shown:36} {step:10.1f} {ratio:10.2f} {once:8.2f}")
                whole = sum(pairs[-1][0].stages.values())
                print_each(found[-1].stages, whole, f"vanilla training of {given.steps[1]} steps")


if __name__ == "__main__":
    main()
