"""What CIFAR-10 networks do not know, as recipes/unknowns.yaml asks it.

    stockpot data get cifar10 mnist fashion_mnist quickdraw
    python studies/unknowns/study.py runs/unknowns
    python studies/unknowns/tables.py runs/unknowns

Textures come from the hub, or from a copy of DTD: `--textures FOLDER`. The run that plan.md judges
is of other images:

    python studies/unknowns/study.py runs/unknowns-fresh --fresh
    python studies/unknowns/tables.py --fresh runs/unknowns-fresh

and the same of several trainings, the zoo's among them:

    python studies/unknowns/study.py runs/unknowns-trainings --trainings runs/trainings
    python studies/unknowns/tables.py --trainings runs/unknowns-trainings
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import stockpot
from stockpot.recipe import load_recipe

sys.path.append(str(Path(__file__).parents[1]))
from trainings import add_options, asked_for

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
    add_options(parser)
    given = parser.parse_args()
    if given.fresh or given.trainings or given.training:
        from measured import measure_fresh

        if given.fresh:
            measure_fresh(given.out, MODELS)
            return
        for number, lying in asked_for(given).items():
            networks = {label: lying[name] for label, name in MODELS.items()}
            measure_fresh(given.out / number, networks)
        return
    place = f"measure.with.0.far.textures.path={given.textures}"
    stockpot.run(load_recipe(RECIPE, [place] if given.textures else []), out=given.out)


if __name__ == "__main__":
    main()
