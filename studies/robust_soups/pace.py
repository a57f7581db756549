"""How long one epoch of 10-step adversarial training takes here, and the epochs that fit a budget.

    python studies/robust_soups/pace.py --seconds 340

prints the `--set` options with which `recipes/cifar_robust.yaml` takes about that long.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from stockpot.cli.make import data_spec
from stockpot.harden.run import harden
from stockpot.models.device import pick_device
from stockpot.models.huggingface import new_huggingface
from stockpot.models.preprocess import Preprocess
from stockpot.recipe import load_recipe
from stockpot.types import ImageSize

RECIPE = Path(__file__).parents[2] / "recipes" / "cifar_robust.yaml"


def seconds_per_epoch(device: str, steps: int, overrides: list[str]) -> float:
    """Time some steps of the recipe's first training run, after a few to warm up."""
    recipe = load_recipe(str(RECIPE), overrides).recipe
    entry, run = recipe.models["new"], recipe.harden["linf"]
    data = data_spec(recipe, run.data).load()
    side = ImageSize(entry.size, entry.size)
    model = new_huggingface(
        str(entry.new), classes=data.classes, preprocess=Preprocess(side, side), seed=0,
        **entry.params,
    )  # fmt: skip
    size = int(run.params["batch_size"])
    settings = run.params | {"epochs": 1, "keep": "last"}

    def timed(count: int) -> float:
        start = time.perf_counter()
        harden(run.method, model, data.limited(count * size), device=device, **settings)
        return time.perf_counter() - start

    timed(5)
    start = timed(1)
    return (timed(steps + 1) - start) / steps * (len(data) // size)


def plan(epoch: float, seconds: float) -> dict[str, int]:
    """Epochs of each run: half of the budget for the common base."""
    whole = seconds / epoch
    base = min(40, max(3, int(whole / 2)))
    tuning = max(1, min(3, round(whole / 14)))
    return {
        "linf": base,
        "linf-l2": tuning,
        "linf-l1": tuning,
        "linf-nominal": 2 * tuning,
        "linf-other": max(2, base // 4),
        "linf-sat": tuning,
        "linf-max": max(1, tuning - 1),
    }


def main() -> None:
    """Print the pace to stderr and the options to stdout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], metavar="a.b=c")
    given = parser.parse_args()
    epoch = seconds_per_epoch(str(pick_device(given.device)), given.steps, given.set)
    print(f"{epoch:.1f} s per epoch", file=sys.stderr)
    print(*(f"--set harden.{name}.epochs={n}" for name, n in plan(epoch, given.seconds).items()))


if __name__ == "__main__":
    main()
