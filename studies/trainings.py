"""The CIFAR-10 family of the zoo trained again, for studies that are judged over several trainings.

    stockpot data get cifar10
    python studies/trainings.py runs/trainings 1
    python studies/trainings.py runs/trainings 2

trains `cifar10-linf`, `-l2`, `-l1` and `-nominal` by the zoo's recipe with first weights, an order
of images and draws of their own, and leaves them in half precision, as the zoo has them, in
runs/trainings/1 and runs/trainings/2. What is finished is not made again, and a training that was
stopped goes on from its last epoch. On an H200 about 12 minutes each; two at once share it.

The zoo's own training is number 0.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import stockpot
from stockpot.files import write_atomic
from stockpot.recipe import RecipeFile, load_recipe
from stockpot.results.few_seeds import Difference
from stockpot.zoo.embed import embed_weights

RECIPE = Path(__file__).parents[1] / "recipes" / "zoo_robust_cifar10.yaml"
FAMILY = ("cifar10-linf", "cifar10-l2", "cifar10-l1", "cifar10-nominal")
BEGIN = "new"
APART = 10
"""Seeds of training n are those of the zoo's, which are below 10, and n times so many."""
ZOO = "0"
DONE = "done.txt"
ALONE = "No further training has been made yet, and the zoo's alone gives no verdict."
"""What stands in the place of a table as long as there is nothing to judge."""


def only_family(recipe: dict[str, Any]) -> dict[str, Any]:
    """The recipe without its other models, and without what it measures."""
    rest = {key: value for key, value in recipe.items() if key not in ("measure", "report")}
    harden = {name: dict(recipe["harden"][name]) for name in FAMILY}
    return rest | {"models": {BEGIN: dict(recipe["models"][BEGIN])}, "harden": harden}


def recipe_of(number: int, overrides: Sequence[str] = ()) -> RecipeFile:
    """The zoo's recipe for one more training: every seed is another one."""
    zoo = load_recipe(RECIPE, (), only_family)
    moved = {"seed": zoo.recipe.seed, f"models.{BEGIN}.seed": zoo.recipe.models[BEGIN].seed} | {
        f"harden.{name}.seed": entry.params.get("seed", zoo.recipe.seed)
        for name, entry in zoo.recipe.harden.items()
    }
    seeds = [f"{place}={seed + APART * number}" for place, seed in moved.items()]
    return load_recipe(RECIPE, [*seeds, *overrides], only_family)


def train(folder: Path, number: int, overrides: Sequence[str] = ()) -> Path:
    """Train one family, and lay it where the studies look for it."""
    if number < 1:
        raise SystemExit("training 0 is the zoo's own")
    place, run = folder / str(number), folder / "made" / str(number)
    stockpot.run(recipe_of(number, overrides), out=run, say=print)
    embed_weights(run, f"recipes/{RECIPE.name}", list(FAMILY), place)
    write_atomic(place / DONE, "\n".join(FAMILY) + "\n")
    return place


def sources(folder: Path | None) -> dict[str, dict[str, str]]:
    """By training, where each network lies; a training that is not whole does not count."""
    found = {ZOO: {name: name for name in FAMILY}}
    places = [] if folder is None else [p for p in folder.iterdir() if p.name.isdigit()]
    for place in sorted(places, key=lambda place: int(place.name)):
        if (place / DONE).is_file():
            found[place.name] = {name: str((place / name).resolve()) for name in FAMILY}
    if folder is not None and len(found) == 1:
        raise SystemExit(f"{folder} holds no training: studies/trainings.py makes them")
    return found


def asked_for(given: argparse.Namespace) -> dict[str, dict[str, str]]:
    """The trainings that a study's command line names."""
    found = sources(given.trainings)
    if missing := set(given.training or ()) - set(found):
        raise SystemExit(f"no whole training {', '.join(sorted(missing))} in {given.trainings}")
    return {n: found[n] for n in given.training} if given.training else found


def add_options(parser: argparse.ArgumentParser) -> None:
    """How a study is told of trainings."""
    parser.add_argument("--trainings", type=Path, help="what studies/trainings.py left")
    parser.add_argument("--training", action="append", help="this one alone (0: the zoo's)")


def each(values: Sequence[float], factor: float = 100.0, digits: int = 1) -> str:
    """What single trainings say, the zoo's first."""
    return " ".join(f"{factor * value:+.{digits}f}" for value in values)


def told(found: Difference, verdict: str) -> tuple[str, str, int, str]:
    """Cells of a table: points with their interval, each training, how many, the verdict."""
    return str(found.alone), each(found.each), len(found.each), verdict


def several(count: int, table: str) -> str:
    """A table over so many trainings, where there are several."""
    return table if count > 1 else ALONE


COLUMNS = ("points [95 %]", "each training", "trainings", "verdict")
"""Heads of what `told` says."""


def in_order(runs: Mapping[str, Any]) -> list[str]:
    """Numbers of trainings, the zoo's first."""
    return sorted(runs, key=int)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("number", type=int, nargs="+", help="1, 2, ...")
    parser.add_argument("--set", action="append", default=[], help="change the recipe, to try it")
    given = parser.parse_args()
    for number in given.number:
        print(train(given.folder, number, given.set), flush=True)


if __name__ == "__main__":
    main()
