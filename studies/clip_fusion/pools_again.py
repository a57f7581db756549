"""The CLIP pool of the zoo trained again, and the published order of mergers on every pool.

    stockpot data get cifar10 && stockpot data get mnist
    stockpot data get fashion_mnist && stockpot data get quickdraw
    python studies/clip_fusion/pools_again.py train runs/pools 1 2
    python studies/clip_fusion/pools_again.py merge runs/pools
    python studies/clip_fusion/tables.py

`train` makes a base and five experts by recipes/zoo_clip.yaml with every seed another one, and
leaves them in half precision, as the zoo has them, in runs/pools/1 and runs/pools/2. `merge` merges
each pool and the zoo's own, which is number 0, asks all test images, and writes again.npz beside
this file; a method that takes too long can be left out (`--without wemoe`). What is finished is
not made again, and a training that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import again
from study import EXPERT_OF, smaller
from untuned import BASE

import stockpot
from stockpot.checkpoints.resolve import zoo_folder
from stockpot.files import write_atomic
from stockpot.models.own_words import FILE as WORDS
from stockpot.recipe import RecipeFile, load_recipe
from stockpot.results.store import load_results
from stockpot.zoo.embed import embed_weights

sys.path.append(str(Path(__file__).parents[1]))
from trainings import APART, DONE, ZOO

RECIPES = Path(__file__).parents[2] / "recipes"
TRAINED, MERGED = RECIPES / "zoo_clip.yaml", RECIPES / "clip_fusion.yaml"
POOL = (BASE, *EXPERT_OF.values())
METHODS = ("average", "task_arithmetic", "ties", "tsv_m", "iso_c", "smile", "fisher", "regmean",
           "adamerging-layer", "wemoe")  # fmt: skip
"""Entries of recipes/clip_fusion.yaml that are asked of every pool."""


def unmeasured(recipe: dict[str, Any]) -> dict[str, Any]:
    """The recipe of the pool without what it measures."""
    return {key: value for key, value in recipe.items() if key not in ("measure", "report")}


def recipe_of(number: int, overrides: Sequence[str] = ()) -> RecipeFile:
    """The zoo's recipe for one more pool: every seed is another one."""
    zoo = load_recipe(TRAINED, (), unmeasured).recipe
    moved = {"seed": zoo.seed}
    moved |= {f"models.{name}.seed": entry.seed for name, entry in zoo.models.items()}
    moved |= {
        f"harden.{name}.seed": entry.params.get("seed", zoo.seed)
        for name, entry in zoo.harden.items()
    }
    seeds = [f"{place}={seed + APART * number}" for place, seed in moved.items()]
    return load_recipe(TRAINED, [*seeds, *overrides], unmeasured)


def train(folder: Path, number: int, overrides: Sequence[str] = ()) -> Path:
    """Train one pool, and lay it where `merge` looks for it."""
    if number < 1:
        raise SystemExit("pool 0 is the zoo's own")
    place, run = folder / str(number), folder / "made" / str(number)
    stockpot.run(recipe_of(number, overrides), out=run, say=print)
    embed_weights(run, f"recipes/{TRAINED.name}", list(POOL), place)
    # The words of the captions, which the zoo's base has beside it: with others it would be asked
    # what it was not taught.
    shutil.copyfile(Path(str(zoo_folder(BASE))) / WORDS, place / BASE / WORDS)
    for name in EXPERT_OF.values():
        # The bare name would mean the zoo's base, and with it another text tower.
        config = place / name / "config.json"
        content = json.loads(config.read_text(encoding="utf-8")) | {"dual_encoder": f"../{BASE}"}
        write_atomic(config, json.dumps(content, indent=2) + "\n")
    write_atomic(place / DONE, "\n".join(POOL) + "\n")
    return place


def sources(folder: Path) -> dict[str, dict[str, str]]:
    """By pool, where each model lies; one that is not whole does not count."""
    found = {ZOO: {name: name for name in POOL}}
    for place in sorted((p for p in folder.iterdir() if p.name.isdigit()),
                        key=lambda place: int(place.name)):  # fmt: skip
        if (place / DONE).is_file():
            found[place.name] = {name: str((place / name).resolve()) for name in POOL}
    if len(found) == 1:
        raise SystemExit(f"{folder} holds no pool: `train` makes them")
    return found


def merges_of(
    source: Mapping[str, str], overrides: Sequence[str] = (), without: Sequence[str] = ()
) -> RecipeFile:
    """recipes/clip_fusion.yaml on one pool, with the methods that are asked again alone.

    Args:
        source: where each model lies.
        overrides: changes of the recipe.
        without: methods that are left out, or `experts`, which are then merged and not asked.
    """

    def these(recipe: dict[str, Any]) -> dict[str, Any]:
        rest = {k: v for k, v in recipe.items() if k not in ("similarity", "report")}
        fuse = {name: dict(recipe["fuse"][name]) for name in METHODS if name not in without}
        fuse["task_arithmetic"]["sweep"] = {"scale": [0.3]}
        models = {name: {"load": source[name]} for name in recipe["models"]}
        measure = dict(recipe["measure"])
        if again.EXPERTS in without:
            measure["models"] = [BASE, *fuse]
        return rest | {"fuse": fuse, "models": models, "measure": measure}

    return load_recipe(MERGED, overrides, these)


def at_toy_size() -> list[str]:
    """Few images and steps, to try it."""
    found = smaller(merges_of({name: name for name in POOL}).raw)
    # Methods that learn see the sets one by one; the measure sees them as one entry.
    limits = {f"data.{task}.limit": 100 for task in ("cifar10", "mnist", "fashion", "quickdraw")}
    return [f"{key}={value}" for key, value in (found | limits).items()]


def merge(
    folder: Path,
    overrides: Sequence[str] = (),
    device: str = "auto",
    without: Sequence[str] = (),
) -> None:
    """Merge and ask every pool; keep which answers are right."""
    kept: dict[str, again.Answers] = {}
    words: dict[str, Any] = {}
    for number, source in sources(folder).items():
        run = folder / "merged" / number
        stockpot.run(merges_of(source, overrides, without), out=run, say=print, device=device)
        results = load_results(run)
        for key in (cell.key for cell in results if cell.key.measure == "clean"):
            if words.setdefault(key.data, key.words) != key.words:
                raise SystemExit(
                    f"{key.model} of pool {number} was asked {key.data} in other words"
                )
        kept[number] = again.answers(results)
    again.keep(kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=["train", "merge"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("number", type=int, nargs="*", help="of pools to train: 1, 2, ...")
    parser.add_argument("--set", action="append", default=[], help="change the recipe, to try it")
    parser.add_argument("--small", action="store_true", help="merge: few images and steps")
    parser.add_argument("--device", default="auto", help="merge: where")
    parser.add_argument(
        "--without", action="append", default=[], choices=[*METHODS, again.EXPERTS],
        help="merge: leave it out (wemoe takes half an hour of a core)",
    )  # fmt: skip
    given = parser.parse_args()
    if given.part == "merge":
        changes = [*(at_toy_size() if given.small else ()), *given.set]
        merge(given.folder, changes, given.device, given.without)
    for number in given.number if given.part == "train" else ():
        print(train(given.folder, number, given.set), flush=True)


if __name__ == "__main__":
    main()
