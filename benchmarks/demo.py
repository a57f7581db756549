"""The demo: `stockpot run recipes/demo.yaml` against bare forward passes, or an older checkout's.

    python benchmarks/demo.py                                 # against bare passes, by stage
    git worktree add ../before COMMIT
    python benchmarks/demo.py --before ../before --rounds 3   # in turns, and whether scores agree

Each run is a process of its own with a folder of its own. What is counted are the seconds that
results say their measuring took (`cost.wall_seconds`), of all cells together; the least of the
rounds, since a busy machine only adds. The floor is bare passes of the same models, as they were
loaded, over as many images as the results count (`cost.images`), in the same run; an attack goes
backward too, so it can only be above it. Scores are compared where model, measure and data have the
same fingerprints, so an older checkout with other embedded pictures has fewer that can be.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import stockpot
from parts.bare import asked, least
from parts.stages import print_stages, read_results
from parts.watched import STOCKPOT, environment
from stockpot.engine import keep_freed_memory
from stockpot.results.schema import CellResult

HERE = Path(__file__).resolve().parents[1]
PICTURES = 150
OLDER = "from stockpot.cli.main import main; main()"
"""The command of checkouts in which `python -m stockpot` was not there yet."""


class Demo(NamedTuple):
    """One run of the demo."""

    whole: float
    """Seconds of the command."""
    results: list[CellResult]
    each: dict[str, float]
    """By fingerprint of a model, what a picture takes its bare passes; for the present code."""

    @property
    def measuring(self) -> float:
        """Seconds of all cells together."""
        return sum(result.cost.wall_seconds for result in self.results)

    @property
    def floor(self) -> float:
        """Seconds that the bare passes take."""
        counted = ((result.model.fingerprint, result.cost.images) for result in self.results)
        return sum(self.each[mark] * images for mark, images in counted)


def demo(checkout: Path) -> Demo:
    """Run the demo of a checkout."""
    with tempfile.TemporaryDirectory() as out:
        line = [*STOCKPOT, "run", "recipes/demo.yaml", "-o", out]
        if not (checkout / "src" / "stockpot" / "__main__.py").is_file():  # an older one
            line[: len(STOCKPOT)] = [sys.executable, "-c", OLDER]
        start = time.perf_counter()
        subprocess.run(
            line, cwd=checkout, env=environment() | {"PYTHONPATH": str(checkout / "src")},
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        whole, results = time.perf_counter() - start, read_results(Path(out))
        return Demo(whole, results, bare(results) if checkout == HERE else {})


def bare(results: list[CellResult]) -> dict[str, float]:
    """Seconds of the clock for a picture, of each model, while those that were made still lie."""
    sources = {result.model.fingerprint: result.model.source for result in results}
    pixels = next(stockpot.load_dataset("icons").batches(PICTURES)).images
    found = {}
    for mark, source in sources.items():
        model = stockpot.load_model(source).eval()
        found[mark] = least(partial(asked, model, [pixels]), "cpu").clock / len(pixels)
    return found


def scores(results: list[CellResult]) -> Iterator[tuple[tuple[str, ...], float]]:
    """Every score by what it is a score of; costs are no scores."""
    for result in results:
        key = result.key
        for score in result.scores if key.measure != "cost" else []:
            condition = json.dumps(score.condition, sort_keys=True)
            what = key.model, key.measure, key.data, key.data_fingerprint
            yield (*what, score.metric, condition), score.value


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", type=Path, help="an older checkout of this repository")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    keep_freed_memory()  # as `run` does: the floor has it too
    checkouts = {"now": HERE} | ({"before": options.before.resolve()} if options.before else {})
    taken: dict[str, list[Demo]] = {name: [] for name in checkouts}
    for _ in range(options.rounds):
        for name, checkout in checkouts.items():
            taken[name].append(demo(checkout))
    best = {name: min(rounds, key=lambda one: one.measuring) for name, rounds in taken.items()}
    for name, one in best.items():
        by: Counter[str] = Counter()
        for result in one.results:
            by[result.key.measure] += result.cost.wall_seconds
        told = ", ".join(f"{measure} {spent:.1f}" for measure, spent in by.items())
        rounds = ", ".join(f"{turn.measuring:.1f}" for turn in taken[name])
        print(f"{name}: measuring {one.measuring:.1f} s ({rounds}), whole command "
              f"{one.whole:.1f} s; {told}")  # fmt: skip
    now = best["now"]
    passes = sum(result.cost.images for result in now.results)
    print(f"floor: {passes:,} images through the bare models, {now.floor:.1f} s; ratio "
          f"{now.measuring / now.floor:.2f}")  # fmt: skip
    print_stages(now.results, now.floor, "floor")
    if options.before:
        compare(now, best["before"])


def compare(now: Demo, before: Demo) -> None:
    """Tell of the seconds, and of the scores, of two checkouts."""
    old, new = dict(scores(before.results)), dict(scores(now.results))
    both = old.keys() & new.keys()
    other = sum(abs(old[key] - new[key]) > 1e-9 for key in both)
    same = f"{other} of {len(both)} scores that both have differ"
    if not both:  # such as another edition of the pictures
        same = "no score is of the same data in both, so none was compared"
    print(f"ratio to the older checkout {now.measuring / before.measuring:.2f}; {same}")


if __name__ == "__main__":
    main()
