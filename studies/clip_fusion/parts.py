"""The fusion recipe in parts that run side by side and share one run folder.

    python studies/clip_fusion/parts.py light runs/clip_fusion --workers 4

A recipe makes all its models before it measures any. Where time is short, the quick methods should
not wait for the slow ones: each part has some of the fusions of recipes/clip_fusion.yaml and
measures those; `light` also measures the base and the experts. `--set` as for `stockpot run`.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

import stockpot.engine.processes as engine
from stockpot.cli.run import command

RECIPE = Path("recipes/clip_fusion.yaml")
SLOW = {"concrete": ("concrete",), "modules": ("surgery", "wemoe")}
"""Part -> its methods; `light` has all others."""


def part_of(recipe: dict, name: str) -> dict:  # type: ignore[type-arg]
    """The recipe with the fusions of one part, and the measurements of those."""
    slow = [method for methods in SLOW.values() for method in methods]
    for entry, settings in list(recipe["fuse"].items()):
        method = settings["method"]
        if method not in SLOW[name] if name in SLOW else method in slow:
            del recipe["fuse"][entry]
    if name in SLOW:
        recipe["measure"]["models"] = list(recipe["fuse"])
        recipe.pop("similarity")
        recipe.pop("report")
    return recipe


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("light", *SLOW))
    parser.add_argument("out", type=Path)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    given = parser.parse_args()
    cores = min(given.workers, engine.usable_cores())
    engine.usable_cores = lambda: cores  # type: ignore[assignment]
    with TemporaryDirectory() as folder:
        recipe = Path(folder) / RECIPE.name
        recipe.write_text(yaml.safe_dump(part_of(yaml.safe_load(RECIPE.read_text()), given.part)))
        command(str(recipe), out=given.out, overrides=given.overrides, engine="processes")
    shutil.copy(RECIPE, given.out / "recipe.yaml")


if __name__ == "__main__":
    main()
