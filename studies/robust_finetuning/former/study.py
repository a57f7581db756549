"""The whole study: tuning on validation pictures, then both recipes with what it chose.

    python studies/robust_finetuning/former/study.py --workers 8

What is finished lies in runs/; stopped and started again, it goes on. `--small` is for a CPU.
A model is measured by the process that made it, so that little is lost when time runs out.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from stockpot.engine.processes import Processes
from stockpot.engine.schedule import Step, schedule
from stockpot.errors import UserError
from stockpot.files import write_atomic
from stockpot.recipe import load_recipe
from stockpot.results.schema import CellResult
from stockpot.results.store import load_results
from stockpot.run.check import check
from stockpot.run.follow import OneModel, make_and_measure
from stockpot.run.plan import build_order, parents

MAIN, DOMAINS = "recipes/robust_finetuning.yaml", "recipes/robust_finetuning_domains.yaml"
TUNING = "studies/robust_finetuning/former/tuning.yaml"
RATES = {"1e-4": 0.0001, "3e-4": 0.0003, "1e-3": 0.001}
BETAS = (2, 6, 20)
CONTEXTS, PHOTOS, DRAWINGS = "", "photo-", "drawing-"
INSIDE = {CONTEXTS: "inside", PHOTOS: "photo", DRAWINGS: "drawing"}


class Chosen(NamedTuple):
    """A learning rate for each experiment, and one beta for all."""

    rates: dict[str, float]
    beta: int

    def overrides(self, entries: dict[str, dict[str, object]], default: str) -> list[str]:
        """As `--set` takes them, for the training runs of a recipe.

        Args:
            entries: its `harden` block.
            default: the experiment of entries whose name begins with no other one's prefix.
        """
        found = []
        for name, entry in entries.items():
            if entry.get("method") == "contrastive" or entry.get("epochs") == 0:
                continue
            kind = PHOTOS if name.startswith(PHOTOS) else default
            found.append(f"harden.{name}.lr={self.rates[kind]}")
            if "beta" in entry:
                found.append(f"harden.{name}.beta={self.beta}")
        return found


def choose(results: Sequence[CellResult]) -> Chosen:
    """The rule of tuning.yaml: vanilla's best rate inside; there the beta best on both sides."""
    scores = {
        (cell.key.model, cell.key.data): cell.score("accuracy").value
        for cell in results
        if cell.key.measure == "clean"
    }
    best = {}
    for kind, data in INSIDE.items():
        rates = {rate: scores.get((f"{kind}vanilla-{rate}", data), -1.0) for rate in RATES}
        best[kind] = max(rates, key=lambda rate: rates[rate])

    def both(beta: int) -> float:
        model = f"object-{best[CONTEXTS]}-{beta}"
        inside, *outside = (
            scores.get((model, data), -1.0) for data in ("inside", "shuffled", "reversed")
        )
        return (inside + sum(outside) / 2) / 2

    return Chosen({kind: RATES[rate] for kind, rate in best.items()}, max(BETAS, key=both))


def follow(path: str, folder: Path, overrides: list[str], engine: Processes, until: float) -> None:
    """Make and measure the models of a recipe, the first seed of each first."""
    file = load_recipe(path, overrides)
    check(file)
    write_atomic(folder / "recipe.yaml", yaml.safe_dump(file.raw, sort_keys=False))
    made_from = parents(file.recipe)
    names = [name for name in build_order(file) if name not in file.recipe.models]
    names.sort(key=lambda name: file.recipe.variant(name).seed or 0)
    steps = [Step(name, made_from[name], OneModel(file.recipe, name, folder)) for name in names]
    for end in schedule(make_and_measure, steps, engine=engine, deadline=until):
        print(f"{time.monotonic():.0f}  {end.name}: {end.state} {end.error or ''}", flush=True)


def smaller(recipe: str) -> list[str]:
    """Overrides that make a recipe small enough for a CPU: few pictures, short training."""
    raw = load_recipe(recipe).raw
    limits = {"mixed": 640, "train": 640, "photos": 640, "photo-c": 50}
    found = [f"data.{name}.limit={limit}" for name, limit in limits.items() if name in raw["data"]]
    trained = [name for name, entry in raw["harden"].items() if entry.get("epochs") != 0]
    return found + [f"harden.{name}.{s}" for name in trained for s in ("epochs=2", "batch_size=64")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after these")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--small", action="store_true", help="few pictures, short training")
    given = parser.parse_args()

    def changed(recipe: str) -> list[str]:
        return smaller(recipe) if given.small else []

    engine, until = Processes(given.workers), time.monotonic() + given.seconds
    tuning = given.runs / "tuning"
    follow(TUNING, tuning, changed(TUNING), engine, until)
    try:
        results = load_results(tuning)
    except UserError as problem:
        raise SystemExit(f"no choice: {problem}") from problem
    chosen = choose(results)
    print(f"chosen: rates {chosen.rates}, beta {chosen.beta}", flush=True)
    # Both recipes make the foundation model in the same way; once is enough.
    made, wanted = (run / "models" / "foundation" for run in (tuning, given.runs / Path(MAIN).stem))
    if made.is_dir() and not wanted.exists():
        shutil.copytree(made, wanted)
    for recipe, kind in ((MAIN, CONTEXTS), (DOMAINS, DRAWINGS)):
        own = chosen.overrides(load_recipe(recipe).raw["harden"], kind)
        follow(recipe, given.runs / Path(recipe).stem, [*changed(recipe), *own], engine, until)


if __name__ == "__main__":
    main()
