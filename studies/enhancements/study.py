"""The models of recipes/enhancements.yaml on all pictures, several at a time.

    python studies/enhancements/study.py --workers 4
    python studies/enhancements/tables.py runs/enhancements

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
    parser.add_argument("--small", action="store_true", help="the recipe's own few pictures")
    given = parser.parse_args()
    file = load_recipe(RECIPE, [] if given.small else WHOLE)
    check(file)
    recipe, made_from = file.recipe, parents(file.recipe)
    folder = given.runs / ("enhancements_small" if given.small else "enhancements")
    measured = recipe.measure.models if recipe.measure else []
    fresh = [name for name, entry in recipe.models.items() if entry.new]
    # Networks that start anew take longest.
    names = [*fresh, *sorted(measured, key=lambda name: name not in ANEW)]
    steps = [Step(name, made_from.get(name, ()), Task(recipe, name, folder)) for name in names]
    start = time.monotonic()
    for end in schedule(
        carry_out, steps, engine=Processes(given.workers), deadline=start + given.seconds
    ):
        passed = time.monotonic() - start
        print(f"{passed:4.0f} s  {end.name}: {end.state} {end.error or ''}", flush=True)


if __name__ == "__main__":
    main()
