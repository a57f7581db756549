"""Train the family of `recipes/cifar_robust.yaml` in a given time, the most important models first.

    python studies/robust_soups/train.py --seconds 400 --out runs/cifar_robust

A few steps tell how long an epoch takes here; the common base gets about half of the time. Its pace
then says how many epochs each fine-tuning gets, and the control takes what is left. What is made is
what `stockpot run` would make of the recipe that is written to the run's folder.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import yaml

from stockpot.files import write_atomic
from stockpot.harden.run import harden
from stockpot.models.device import pick_device
from stockpot.models.huggingface import new_huggingface
from stockpot.models.preprocess import Preprocess
from stockpot.recipe import load_recipe
from stockpot.run.make import make_model
from stockpot.run.plan import data_spec
from stockpot.types import ImageSize

RECIPE = Path(__file__).parents[2] / "recipes" / "cifar_robust.yaml"

# What an epoch costs in epochs of `linf`: l_1 sorts pixels at every step, MAX attacks twice.
COST = {"linf-l2": 1.0, "linf-l1": 1.4, "linf-nominal": 0.15, "linf-sat": 1.2, "linf-max": 2.4}
SHARE_OF_BASE = 0.52


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

    timed(3)
    start = timed(1)
    return (timed(steps + 1) - start) / steps * (len(data) // size)


def base_epochs(epoch: float, seconds: float, most: int = 28) -> int:
    """Epochs of the base."""
    return min(most, max(2, int(SHARE_OF_BASE * seconds / epoch)))


def tuning_epochs(epoch: float, seconds: float) -> dict[str, int]:
    """Epochs of the fine-tunings: three at most (MAX two, nominal twice as many), one at least."""
    for times in (3, 2, 1):
        epochs = dict.fromkeys(COST, times)
        epochs |= {"linf-nominal": 2 * times, "linf-max": max(1, times - 1)}
        if sum(COST[name] * n for name, n in epochs.items()) * epoch <= seconds:
            break
    return epochs


def main() -> None:
    """Read the command line, and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/cifar_robust"))
    parser.add_argument("--steps", type=int, default=8, help="that tell the pace")
    parser.add_argument("--set", action="append", default=[], metavar="a.b=c")
    given = parser.parse_args()
    started = time.monotonic()

    def left() -> float:
        return given.seconds - (time.monotonic() - started)

    def make(name: str) -> float:
        """Train one model with the epochs that are known so far; gives the seconds it took."""
        sets = [f"harden.{name}.epochs={n}" for name, n in epochs.items()]
        file = load_recipe(str(RECIPE), [*given.set, *sets])
        write_atomic(given.out / "recipe.yaml", yaml.safe_dump(file.raw, sort_keys=False))
        began = time.monotonic()
        if not (given.out / "models" / name).exists():
            make_model(file.recipe, name, given.out)
        took = time.monotonic() - began
        print(
            f"{name}: {epochs.get(name, 0)} epochs, {took:.0f} s; {left():.0f} s left", flush=True
        )
        return took

    epochs: dict[str, int] = {}
    make("new")
    make("new-other")
    device = str(pick_device(load_recipe(str(RECIPE), given.set).recipe.device))
    epoch = seconds_per_epoch(device, given.steps, given.set)
    # On a shared device the first steps are the quickest.
    epochs["linf"] = base_epochs(1.25 * epoch, left())
    print(f"{epoch:.1f} s per epoch before the start", flush=True)
    epoch = make("linf") / epochs["linf"]
    print(f"{epoch:.1f} s per epoch", flush=True)
    control = epochs["linf"] // 4
    epochs |= tuning_epochs(epoch, left() - control * epoch)
    for name in COST:
        make(name)
    epochs["linf-other"] = max(1, min(control, int(left() / epoch)))
    make("linf-other")


if __name__ == "__main__":
    sys.exit(main())
