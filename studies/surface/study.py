"""The networks of recipes/surface.yaml, several at a time, each measured where it was made.

    python studies/surface/study.py --workers 8

What is finished lies in runs/surface; stopped and started again, it goes on. Results go along to
another machine (runs/surface/results with the recipe beside them) and are not made again there,
weights or none. `--small` is for two cores.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import yaml

from stockpot.engine.processes import Processes
from stockpot.engine.schedule import Step, schedule
from stockpot.errors import UserError
from stockpot.files import write_atomic
from stockpot.recipe import RecipeFile, load_recipe
from stockpot.results.store import ResultStore
from stockpot.run.check import check
from stockpot.run.follow import OneModel, make_and_measure
from stockpot.run.plan import parents

RECIPE = "recipes/surface.yaml"
SMALL = ("resnet20-style-fluent", "resnet20-subtype-0", "resnet20-version-noto")
"""What two cores make in a few minutes: one network, one hold-out of each kind."""
ROUNDS = (
    ("style-fluent", "subtype-0", "version-noto"),
    ("style-google", "subtype-1", "version-fluent"),
    ("style-twemoji", "subtype-2"),
    ("style-emojione",),
    ("style-fxemoji",),
    ("style-streamline",),
)
"""All networks make the hold-outs of a round before any makes the next: when time runs out, every
kind is there for every network."""
EQUAL_COMPUTE = "-compute-"
"""In the names of rows for equal computation."""


def smaller(names: tuple[str, ...]) -> list[str]:
    """Overrides that leave each of these training runs a tenth of the pictures and few epochs."""
    found = ["models.new-resnet20.size=16"]
    for name in names:
        found += [f"harden.{name}.epochs=12", f"data.train-{name.partition('-')[2]}.limit=2500"]
        found.append(f"harden.{name}.precision=fp32")  # processors emulate bfloat16
    return found


def in_rounds(names: list[str]) -> list[str]:
    """Equal epochs first, round by round; in a round the last of the recipe, which take longest.

    The first round of equal computation comes halfway, so that there are some.
    """

    def place(name: str) -> tuple[float, int]:
        at = next(i for i, held in enumerate(ROUNDS) if name.endswith(held))
        later = len(ROUNDS) if at else 2.5
        return at + later * (EQUAL_COMPUTE in name), -names.index(name)

    return sorted(names, key=place)


def measured(file: RecipeFile, folder: Path) -> set[str]:
    """Models whose results lie in the folder; the recipe beside them must be this one."""
    found = {cell.key.model for cell in ResultStore(folder / "results")}
    beside = folder / "recipe.yaml"
    if found and yaml.safe_load(beside.read_text(encoding="utf-8")) != file.raw:
        raise UserError(f"{folder} has results of another recipe: take other --runs.")
    return found


def follow(file: RecipeFile, names: list[str], folder: Path, workers: int, until: float) -> None:
    """Make and measure models of the recipe; what they are made from comes first."""
    check(file)
    there = measured(file, folder)
    write_atomic(folder / "recipe.yaml", yaml.safe_dump(file.raw, sort_keys=False))
    made_from = parents(file.recipe)
    names = [name for name in names if name not in there]
    print(f"{len(there)} there, {len(names)} to make", flush=True)
    fresh = list(dict.fromkeys(parent for name in names for parent in made_from[name]))
    steps = [
        Step(name, made_from.get(name, ()), OneModel(file.recipe, name, folder)) for name in fresh
    ]
    steps += [Step(name, made_from[name], OneModel(file.recipe, name, folder)) for name in names]
    start = time.monotonic()
    for end in schedule(make_and_measure, steps, engine=Processes(workers), deadline=until):
        passed = time.monotonic() - start
        print(f"{passed:4.0f} s  {end.name}: {end.state} {end.error or ''}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="start nothing after these"
    )
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--small", action="store_true", help="one network, three hold-outs")
    given = parser.parse_args()
    file = load_recipe(RECIPE, smaller(SMALL) if given.small else [])
    names = list(SMALL) if given.small else list(file.recipe.harden)
    folder = given.runs / ("surface_small" if given.small else "surface")
    follow(file, in_rounds(names), folder, given.workers, time.monotonic() + given.seconds)


if __name__ == "__main__":
    main()
