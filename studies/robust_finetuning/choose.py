"""The rates and beta that validation pictures speak for, by the rule that tuning.yaml states.

    python studies/robust_finetuning/choose.py runs/tuning

Prints what was measured and what follows from it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

from stockpot.results.schema import CellResult
from stockpot.results.store import load_results

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
    """The rule: vanilla's best rate inside; at that rate the beta best inside and outside."""
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


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python studies/robust_finetuning/choose.py RUN")
    results = load_results(sys.argv[1])
    table: dict[str, dict[str, float]] = {}
    for cell in results:
        if cell.key.measure == "clean":
            row = table.setdefault(cell.key.model, {})
            row[cell.key.data] = 100 * cell.score("accuracy").value
    data = ["inside", "shuffled", "reversed", "photo", "drawing"]
    print("| model | " + " | ".join(data) + " |\n|" + "---|" * (1 + len(data)))
    for name, row in table.items():
        values = (f"{row[key]:.1f}" if key in row else "" for key in data)
        print(f"| {name} | " + " | ".join(values) + " |")
    chosen = choose(results)
    print(f"\nrates: {chosen.rates}, beta: {chosen.beta}")


if __name__ == "__main__":
    main()
