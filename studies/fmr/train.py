"""Train the networks of `recipes/zoo_dynamic.yaml`, several at a time.

    python studies/fmr/train.py runs/zoo_dynamic

What comes out is what `stockpot run` would make. Networks stand in lanes, one process each: AugMix
waits for the processor and PGD for the GPU, so beside each other they cost little more than alone.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import NamedTuple

from stockpot.engine import engines
from stockpot.recipe import Recipe, load_recipe
from stockpot.run.make import make_model
from stockpot.run.plan import parents

RECIPE = Path(__file__).parents[2] / "recipes" / "zoo_dynamic.yaml"
LANES = (
    ("cifar-pgd",),
    ("cifar-vanilla", "cifar-augmented", "cifar-vanilla-2"),
    ("cifar-grey", "lenet-2", "lenet-3"),
    ("cifar-augmix",),
    ("lenet-augmix",),
    ("mnist-resnet", "lenet", "lenet-pgd", "lenet-l2", "lenet-affine"),
)


class Lane(NamedTuple):
    """Networks that one process trains, one after the other."""

    recipe: Recipe
    names: tuple[str, ...]
    folder: Path


def train(lane: Lane) -> str:
    """Make what is missing."""
    start = time.monotonic()
    for name in lane.names:
        if not (lane.folder / "models" / name).exists():
            make_model(lane.recipe, name, lane.folder)
        print(f"{name}: {time.monotonic() - start:.0f} s after its lane began", flush=True)
    return ", ".join(lane.names)


def main() -> None:
    """Read the command line, and train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, nargs="?", default=Path("runs/zoo_dynamic"))
    parser.add_argument("--set", action="append", default=[], metavar="a.b=c")
    given = parser.parse_args()
    recipe = load_recipe(str(RECIPE), given.set).recipe
    made_from = parents(recipe)
    starts = dict.fromkeys(start for lane in LANES for name in lane for start in made_from[name])
    for name in (start for start in starts if start in recipe.models):
        if not (given.out / "models" / name).exists():
            make_model(recipe, name, given.out)
    lanes = [Lane(recipe, names, given.out) for names in LANES]
    for outcome in engines.get("processes")(workers=len(lanes)).run(train, lanes):
        print(f"{outcome.value or outcome.error!r} done", flush=True)


if __name__ == "__main__":
    main()
