"""The networks of recipes/surface.yaml, several at a time, each measured where it was made.

    python studies/surface/study.py --workers 8
    python studies/surface/study.py --workers 8 --trainings 1,2   # further ones
    python studies/surface/again.py runs/surface-[12]

What is finished lies in runs/surface, further trainings in runs/surface-1 and so on; stopped and
started again, it goes on. Results go along to another machine (runs/surface/results with the recipe
beside them) and are not made again there, weights or none. `--small` is for two cores.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from stockpot.engine.processes import Processes
from stockpot.engine.schedule import Step, schedule
from stockpot.errors import UserError
from stockpot.files import write_atomic
from stockpot.recipe import Recipe, RecipeFile, load_recipe
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


def of_training(seed: int, recipe: Recipe) -> list[str]:
    """First weights, order of pictures and draws of its own; hold-outs and pictures are the same.

    Rows for equal computation are not trained again.
    """
    fresh = [f"models.{name}.seed={seed}" for name, entry in recipe.models.items() if entry.new]
    return fresh + [f"harden.{name}.seed={seed}" for name in equal_epochs(recipe)]


def equal_epochs(recipe: Recipe) -> list[str]:
    """What is trained for 20 epochs, in the recipe's order."""
    return [name for name in recipe.harden if EQUAL_COMPUTE not in name]


def network_of(name: str) -> str:
    """Of a model's name, without its hold-out and whatever it is trained for."""
    return name.partition("-")[0]


def round_of(name: str) -> int:
    """The place in ROUNDS of a model's hold-out."""
    return next(i for i, held in enumerate(ROUNDS) if name.endswith(held))


def in_rounds(names: list[str]) -> list[str]:
    """Equal epochs first, round by round; in a round the last of the recipe, which take longest.

    The first round of equal computation comes halfway, so that there are some.
    """

    def place(name: str) -> tuple[float, int]:
        at = round_of(name)
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


class Part(NamedTuple):
    """Models of a recipe that are made and measured in a folder, in this order."""

    file: RecipeFile
    names: list[str]
    folder: Path


def steps_of(part: Part) -> tuple[list[Step], list[Step]]:
    """What first weights need, and the models that are not there yet; names tell the folder."""
    made_from = parents(part.file.recipe)
    there = measured(part.file, part.folder)
    names = [name for name in part.names if name not in there]
    print(f"{part.folder.name}: {len(there)} there, {len(names)} to make", flush=True)
    fresh = list(dict.fromkeys(parent for name in names for parent in made_from[name]))

    def step(name: str) -> Step:
        own = [f"{part.folder.name} {parent}" for parent in made_from.get(name, ())]
        task = OneModel(part.file.recipe, name, part.folder)
        return Step(f"{part.folder.name} {name}", own, task)

    return [step(name) for name in fresh], [step(name) for name in names]


def interleaved(parts: Sequence[Sequence[Step]]) -> list[Step]:
    """A round of every training before the next round of any, so that all have the same ones."""
    if len(parts) == 1:
        return list(parts[0])
    return sorted((step for own in parts for step in own), key=lambda step: round_of(step.name))


def follow(parts: Sequence[Part], workers: int, until: float) -> None:
    """Make and measure models of recipes; what they are made from comes first."""
    begun, models = [], []
    for part in parts:
        check(part.file)
        fresh, own = steps_of(part)
        write_atomic(part.folder / "recipe.yaml", yaml.safe_dump(part.file.raw, sort_keys=False))
        begun += fresh
        models.append(own)
    steps = [*begun, *interleaved(models)]
    start = time.monotonic()
    for end in schedule(make_and_measure, steps, engine=Processes(workers), deadline=until):
        passed = time.monotonic() - start
        print(f"{passed:4.0f} s  {end.name}: {end.state} {end.error or ''}", flush=True)


def part_of(given: argparse.Namespace, seed: int | None) -> Part:
    """One training; None: the recipe as it is."""
    overrides = smaller(SMALL) if given.small else []
    folder = given.runs / ("surface_small" if given.small else "surface")
    file = load_recipe(RECIPE, overrides)
    names = list(file.recipe.harden)
    if seed is not None:
        names = equal_epochs(file.recipe)
        folder = folder.with_name(f"{folder.name}-{seed}")
        file = load_recipe(RECIPE, [*overrides, *of_training(seed, file.recipe)])
    if given.small:
        names = list(SMALL)
    if given.only:
        wanted = given.only.split(",")
        if unknown := set(wanted) - set(map(network_of, names)):
            raise SystemExit(f"no network {', '.join(sorted(unknown))} in {RECIPE}")
        names = [name for name in names if network_of(name) in wanted]
    return Part(file, in_rounds(names), folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="start nothing after these"
    )
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--only", default="", help="these networks, by comma")
    parser.add_argument("--trainings", default="", help="seeds of further ones, such as 1,2")
    parser.add_argument("--small", action="store_true", help="one network, three hold-outs")
    given = parser.parse_args()
    until = time.monotonic() + given.seconds
    seeds = [int(seed) for seed in given.trainings.split(",") if seed] or [None]
    follow([part_of(given, seed) for seed in seeds], given.workers, until)


if __name__ == "__main__":
    main()
