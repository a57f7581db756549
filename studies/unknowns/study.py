"""What CIFAR-10 networks do not know, as recipes/unknowns.yaml asks it.

    stockpot data get cifar10 mnist fashion_mnist quickdraw
    python studies/unknowns/study.py runs/unknowns
    python studies/unknowns/tables.py runs/unknowns

Textures come from the hub, or from a copy of DTD: `--textures FOLDER`. The run that plan.md judges
is of other images:

    python studies/unknowns/study.py runs/unknowns-fresh --fresh
    python studies/unknowns/tables.py --fresh runs/unknowns-fresh
"""

from __future__ import annotations

import argparse
from pathlib import Path

import stockpot
from stockpot.recipe import load_recipe

RECIPE = "recipes/unknowns.yaml"
SETS = {
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "quickdraw": "Quick, Draw!",
    "icons": "icons",
    "textures": "textures (DTD)",
}
"""Foreign sets -> how tables call them."""
MODELS = {"nominal": "cifar10-nominal", "l2": "cifar10-l2", "linf": "cifar10-linf"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--textures", help="a folder with DTD as published")
    parser.add_argument("--fresh", action="store_true", help="the run that plan.md judges")
    given = parser.parse_args()
    if given.fresh:
        from measured import measure_fresh

        measure_fresh(given.out)
        return
    place = f"measure.with.0.far.textures.path={given.textures}"
    stockpot.run(load_recipe(RECIPE, [place] if given.textures else []), out=given.out)


if __name__ == "__main__":
    main()
