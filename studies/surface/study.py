"""The networks of recipes/surface.yaml, several at a time, each measured where it was made.

    python studies/surface/study.py --workers 8

What is finished lies in runs/surface; stopped and started again, it goes on. `--small` is for two
cores.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import yaml

from stockpot.engine.processes import Processes
from stockpot.engine.schedule import Step, schedule
from stockpot.files import write_atomic
from stockpot.measure.run import run_cells
from stockpot.recipe import Recipe, RecipeFile, load_recipe
from stockpot.run.check import check
from stockpot.run.make import make_model
from stockpot.run.plan import cells_of, parents

RECIPE = "recipes/surface.yaml"
SMALL = ("resnet20-style-fluent", "resnet20-subtype-0", "resnet20-version-noto")
"""What two cores make in a few minutes: one network, one hold-out of each kind."""
FIRST = ("style-fluent", "subtype-0", "version-noto")
"""Made before the others, so that every kind is there when time runs out."""


class Task(NamedTuple):
    """One model of a recipe, as plain values that a worker can be sent."""

    recipe: Recipe
    name: str
    folder: Path


def carry_out(task: Task) -> None:
    """Make a model unless it is there as asked for, then measure it."""
    make_model(task.recipe, task.name, task.folder)
    run_cells([c for c in cells_of(task.recipe, task.folder) if c.model.name == task.name])


def smaller(names: tuple[str, ...]) -> list[str]:
    """Overrides that leave each of these training runs a tenth of the pictures and few epochs."""
    found = ["models.new-resnet20.size=16"]
    for name in names:
        found += [f"harden.{name}.epochs=12", f"data.train-{name.partition('-')[2]}.limit=2500"]
    return found


def follow(file: RecipeFile, names: list[str], folder: Path, workers: int, until: float) -> None:
    """Make and measure models of the recipe; what they are made from comes first."""
    check(file)
    write_atomic(folder / "recipe.yaml", yaml.safe_dump(file.raw, sort_keys=False))
    made_from = parents(file.recipe)
    fresh = list(dict.fromkeys(parent for name in names for parent in made_from[name]))
    steps = [Step(name, made_from.get(name, ()), Task(file.recipe, name, folder)) for name in fresh]
    steps += [Step(name, made_from[name], Task(file.recipe, name, folder)) for name in names]
    start = time.monotonic()
    for end in schedule(carry_out, steps, engine=Processes(workers), deadline=until):
        passed = time.monotonic() - start
        print(f"{passed:4.0f} s  {end.name}: {end.state} {end.error or ''}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after these")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--small", action="store_true", help="one network, three hold-outs")
    given = parser.parse_args()
    file = load_recipe(RECIPE, smaller(SMALL) if given.small else [])
    names = list(SMALL) if given.small else list(file.recipe.harden)
    names.sort(key=lambda name: not name.endswith(FIRST))
    folder = given.runs / ("surface_small" if given.small else "surface")
    follow(file, names, folder, given.workers, time.monotonic() + given.seconds)


if __name__ == "__main__":
    main()
