"""The demo's measuring part: `stockpot run recipes/demo.yaml`, beside an older checkout's.

    python benchmarks/demo.py                                 # seconds by measure
    git worktree add ../before COMMIT
    python benchmarks/demo.py --before ../before --rounds 3   # in turns, and whether scores agree

Each run is a process of its own with a folder of its own. What is counted are the seconds that
results say their measuring took (`cost.wall_seconds`), of all cells together; the least of the
rounds, since a busy machine only adds. Scores are compared where model, measure and data have the
same fingerprints, so an older checkout with other embedded pictures has fewer that can be.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
UNKEPT = "PYTHONDONTWRITEBYTECODE"
COMMAND = "import sys; from stockpot.cli.main import main; main()"


def demo(checkout: Path) -> tuple[float, list[dict[str, Any]]]:
    """Seconds of the whole command of a checkout, and its results."""
    own = {name: value for name, value in os.environ.items() if name != UNKEPT}
    with tempfile.TemporaryDirectory() as out:
        line = [sys.executable, "-c", COMMAND, "run", "recipes/demo.yaml", "-o", out]
        start = time.perf_counter()
        subprocess.run(
            line, cwd=checkout, env=own | {"PYTHONPATH": str(checkout / "src")}, check=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        seconds = time.perf_counter() - start
        files = sorted((Path(out) / "results").glob("*.json"))
        return seconds, [json.loads(file.read_text(encoding="utf-8")) for file in files]


def measuring(results: list[dict[str, Any]]) -> dict[str, float]:
    """Seconds by measure."""
    found: dict[str, float] = {}
    for result in results:
        name = result["key"]["measure"]
        found[name] = found.get(name, 0.0) + result["cost"]["wall_seconds"]
    return found


def scores(results: list[dict[str, Any]]) -> Iterator[tuple[tuple[str, ...], float]]:
    """Every score by what it is a score of; costs are no scores."""
    for result in results:
        key = result["key"]
        what = *(key[part] for part in ("model", "measure", "data")), key["data_fingerprint"]
        for score in result["scores"] if key["measure"] != "cost" else []:
            condition = json.dumps(score.get("condition", {}), sort_keys=True)
            yield (*what, score["metric"], condition), score["value"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", type=Path, help="an older checkout of this repository")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    checkouts = {"now": HERE} | ({"before": options.before.resolve()} if options.before else {})
    taken: dict[str, list[tuple[float, float, list[dict[str, Any]]]]] = {}
    for _ in range(options.rounds):
        for name, checkout in checkouts.items():
            whole, results = demo(checkout)
            taken.setdefault(name, []).append((sum(measuring(results).values()), whole, results))
    best = {name: min(rounds, key=lambda one: one[0]) for name, rounds in taken.items()}
    for name, (part, whole, results) in best.items():
        by = ", ".join(f"{measure} {spent:.1f}" for measure, spent in measuring(results).items())
        each = ", ".join(f"{one[0]:.1f}" for one in taken[name])
        print(f"{name}: measuring {part:.1f} s ({each}), whole command {whole:.1f} s; {by}")
    if options.before:
        old, new = (dict(scores(best[name][2])) for name in ("before", "now"))
        both = old.keys() & new.keys()
        other = sum(abs(old[key] - new[key]) > 1e-9 for key in both)
        same = f"{other} of {len(both)} scores that both have differ"
        if not both:  # such as another edition of the pictures
            same = "no score is of the same data in both, so none was compared"
        print(f"ratio {best['now'][0] / best['before'][0]:.2f}; {same}")


if __name__ == "__main__":
    main()
