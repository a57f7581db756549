"""The whole study: tuning on validation pictures, then both recipes with what it chose.

    python studies/robust_finetuning/run.py --workers 8

What is finished lies in runs/; stopped and started again, it goes on. Small enough for a CPU:

    python studies/robust_finetuning/run.py --workers 2 --train epochs=2 --train batch_size=64 \\
        --set data.train.limit=640 --set data.photos.limit=640 --set data.photo-c.limit=50
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path

from choose import CONTEXTS, DRAWINGS, choose
from side_by_side import Kitchen

from stockpot.errors import UserError
from stockpot.recipe import load_recipe
from stockpot.results.store import load_results

MAIN, DOMAINS = "recipes/robust_finetuning.yaml", "recipes/robust_finetuning_domains.yaml"
TUNING = "studies/robust_finetuning/tuning.yaml"


def fitting(recipe: str, overrides: list[str]) -> list[str]:
    """The overrides whose place stands in this recipe; data.train.limit, say, is not in all."""
    raw = load_recipe(recipe).raw
    return [text for text in overrides if _place(raw, text.partition("=")[0].split(".")[:-1])]


def _place(raw: object, keys: list[str]) -> bool:
    for key in keys:
        if not isinstance(raw, dict) or key not in raw:
            return False
        raw = raw[key]
    return True


def everywhere(recipe: str, setting: str) -> list[str]:
    """`epochs=1` as an override of every training run of a recipe that takes steps."""
    key, _, value = setting.partition("=")
    entries = load_recipe(recipe).raw["harden"]
    return [f"harden.{name}.{key}={value}" for name, e in entries.items() if e.get("epochs") != 0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after these")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="a.b=c")
    parser.add_argument("--train", action="append", default=[], help="such as epochs=1, for all")
    given = parser.parse_args()

    def changed(recipe: str) -> list[str]:
        own = [text for setting in given.train for text in everywhere(recipe, setting)]
        return fitting(recipe, given.overrides) + own

    kitchen = Kitchen(given.workers, time.monotonic() + given.seconds)
    tuning = given.runs / "tuning"
    kitchen.follow(TUNING, tuning, changed(TUNING))
    try:
        chosen = choose(load_results(tuning))
    except UserError as problem:
        kitchen.say(f"no choice: {problem}")
        kitchen.close()
        return
    # Both recipes make the foundation model in the same way; once is enough.
    made, wanted = (run / "models" / "foundation" for run in (tuning, given.runs / Path(MAIN).stem))
    if made.is_dir() and not wanted.exists():
        shutil.copytree(made, wanted)
    kitchen.say(f"chosen: rates {chosen.rates}, beta {chosen.beta}")
    for recipe, kind in ((MAIN, CONTEXTS), (DOMAINS, DRAWINGS)):
        own = chosen.overrides(load_recipe(recipe).raw["harden"], kind)
        kitchen.follow(recipe, given.runs / Path(recipe).stem, [*changed(recipe), *own])
    kitchen.close()


if __name__ == "__main__":
    main()
