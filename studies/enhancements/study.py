"""The models of recipes/enhancements.yaml on all pictures, several at a time.

    python studies/enhancements/study.py --workers 4
    python studies/enhancements/tables.py runs/enhancements
    python studies/enhancements/study.py --workers 4 --trainings 1,2,3   # further ones
    python studies/enhancements/again.py runs/enhancements-[123]

What is finished lies in runs/enhancements; stopped and started again, it goes on. `--small` is for
two cores.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import NamedTuple

from stockpot.engine.processes import Processes
from stockpot.engine.schedule import Step, schedule
from stockpot.measure.run import run_cells
from stockpot.recipe import Recipe, load_recipe
from stockpot.run.check import check
from stockpot.run.make import make_model
from stockpot.run.plan import cells_of, parents

RECIPE = "recipes/enhancements.yaml"
ANEW = ("size-4", "size-8", "size-16", "multiscale")
NINE = tuple(
    f"stability-{noise}-{weight}" for noise in ("01", "05", "10") for weight in ("01", "05", "10")
)
WHOLE = [
    *(f"data.{part}.limit=20000" for part in ("train", "test")),
    *(f"harden.{name}.epochs=15" for name in ANEW),
    "measure.with.1.severities=[1,2,3,4,5]",
]
"""All pictures and severities, and more epochs for networks that start anew."""


def of_training(seed: int) -> list[str]:
    """All that is trained with seeds of its own; pictures and their corruptions stay the same."""
    made = ("control", "clahe-trained", *NINE, *ANEW)
    fresh = (f"models.new-{name.removeprefix('size-')}.seed={seed}" for name in ANEW)
    return [*(f"harden.{name}.seed={seed}" for name in made), *fresh]


class Task(NamedTuple):
    """One model of the recipe, as plain values that a worker can be sent."""

    recipe: Recipe
    name: str
    folder: Path


def carry_out(task: Task) -> None:
    """Make a model, if the recipe makes it, and measure it."""
    if task.name in parents(task.recipe):
        make_model(task.recipe, task.name, task.folder)
    cells = cells_of(task.recipe, task.folder)
    run_cells([cell for cell in cells if cell.model.name == task.name and cell.measure != "cost"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="start none after these"
    )
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--only", default="", help="these models and what they need, by comma")
    parser.add_argument("--trainings", default="", help="seeds of further ones, such as 1,2,3")
    parser.add_argument("--small", action="store_true", help="the recipe's own few pictures")
    given = parser.parse_args()
    seeds = [int(seed) for seed in given.trainings.split(",") if seed] or [None]
    until = time.monotonic() + given.seconds
    for seed in seeds:
        run(given, seed, until)


def run(given: argparse.Namespace, seed: int | None, until: float) -> None:
    """All models of one training; None: of the recipe as it is."""
    overrides = [] if given.small else list(WHOLE)
    folder = given.runs / ("enhancements_small" if given.small else "enhancements")
    if seed is not None:
        overrides += of_training(seed)
        folder = folder.with_name(f"{folder.name}-{seed}")
    file = load_recipe(RECIPE, overrides)
    check(file)
    recipe, made_from = file.recipe, parents(file.recipe)
    measured = recipe.measure.models if recipe.measure else []
    if seed is not None:  # what trains nothing is the same in every training
        measured = ["start", *(name for name in measured if name in recipe.harden)]
    if given.only:
        measured = [name for name in measured if name in ("start", *given.only.split(","))]
    fresh = [name for name, entry in recipe.models.items() if entry.new]
    # Networks that start anew take longest.
    names = [*fresh, *sorted(measured, key=lambda name: name not in ANEW)]
    steps = [Step(name, made_from.get(name, ()), Task(recipe, name, folder)) for name in names]
    start = time.monotonic()
    for end in schedule(carry_out, steps, engine=Processes(given.workers), deadline=until):
        passed = time.monotonic() - start
        print(
            f"{passed:4.0f} s  {folder.name} {end.name}: {end.state} {end.error or ''}", flush=True
        )


if __name__ == "__main__":
    main()
