"""Tables of what CIFAR-10 networks do not know, from the run that `study.py` left.

    python studies/unknowns/tables.py runs/unknowns
    python studies/unknowns/tables.py --fresh runs/unknowns-fresh
    python studies/unknowns/tables.py --trainings runs/unknowns-trainings

Writes scores.csv, or claims.csv with `--fresh`, or trainings.csv with `--trainings`, beside this
file, and fills README.md with tables.
Without a run it fills them from what lies here.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from again import training_rows, trainings_table
from claims import CLAIMS, claim_rows, judged, shown
from study import MODELS, SETS

from stockpot.files import write_atomic
from stockpot.measure.unknown.detectors import ALL
from stockpot.results.schema import CellResult, Score
from stockpot.results.store import load_results
from stockpot.results.tables import csv_text, fill, markdown, percent, read_csv

HERE = Path(__file__).parent
KEPT = (
    *("accuracy", "auroc", "fpr95", "far_auroc", "ece", "temperature", "coverage", "set_size"),
    *("selective_accuracy", "certified_accuracy"),
)
NAMED_BY = ("detector", "scaling", "method", "coverage", "radius")
"""What tells scores of one metric apart, besides the foreign set."""
FILES = ("scores", "claims", "trainings")
Row = Mapping[str, Any]


def rows_of(results: Sequence[CellResult]) -> list[dict[str, Any]]:
    """One row for each score that a table shows."""
    return [
        {
            "model": cell.key.model,
            "metric": score.metric,
            "of": _named(score),
            "set": score.condition.get("set", ""),
            "value": round(score.value, 4),
            "low": None if score.ci_low is None else round(score.ci_low, 4),
            "high": None if score.ci_high is None else round(score.ci_high, 4),
        }
        for cell in results
        for score in cell.scores
        if score.metric in KEPT and (score.metric != "accuracy" or cell.key.measure == "ood")
    ]


def _named(score: Score) -> str:
    return next((str(score.condition[key]) for key in NAMED_BY if key in score.condition), "")


def from_data(
    rows: Sequence[Row], claims: Sequence[Row], trainings: Sequence[Row]
) -> dict[str, str]:
    """The places of README.md that follow from scores.csv, claims.csv and trainings.csv."""
    at = {
        (row["model"], row["metric"], str(row["of"] or ""), row["set"] or ""): row for row in rows
    }
    found = {}
    for model in MODELS:
        lines = [
            (f"`{name}`", *(_detected(at, model, name, held) for held in SETS),
             _shown(at[model, "far_auroc", name, ""]))
            for name in ALL
        ]  # fmt: skip
        found[f"detectors-{model}"] = markdown(("detector", *SETS.values(), "mean AUROC"), lines)
    found["models"] = markdown(
        ("", *(f"`{name}`" for name in MODELS.values())),
        [
            (words, *(_shown(at[model, *key, ""]) for model in MODELS))
            for words, key in ASKED.items()
        ],
    )
    found["claims"] = _judged(claims)
    found["trainings"] = trainings_table(trainings)
    return found


def _judged(rows: Sequence[Row]) -> str:
    lines = []
    for number, claim in CLAIMS.items():
        own = [row for row in rows if row["claim"] == number]
        said = (shown(claim, own), judged(claim, own)) if own else ("", "not measured")
        lines.append((f"{number} {claim.words}", *said))
    return markdown(("claim", "found [95 %]", "verdict"), lines)


ASKED = {
    "accuracy": ("accuracy", ""),
    "AUROC of `msp`, mean of the sets": ("far_auroc", "msp"),
    "AUROC of `vim`, mean of the sets": ("far_auroc", "vim"),
    "ECE": ("ece", ""),
    "ECE after temperature": ("ece", "temperature"),
    "temperature": ("temperature", ""),
    "LAC at alpha 0.1: coverage": ("coverage", "lac"),
    "LAC: classes in a set": ("set_size", "lac"),
    "APS at alpha 0.1: coverage": ("coverage", "aps"),
    "APS: classes in a set": ("set_size", "aps"),
    "accuracy of the surest half": ("selective_accuracy", "0.5"),
    "certified at l_2 radius 0.25": ("certified_accuracy", "0.25"),
}
"""Rows of the table of models: their words, and the metric with what names it."""


def _detected(at: Mapping[tuple[str, ...], Row], model: str, name: str, held: str) -> str:
    auroc, missed = (at[model, metric, name, held] for metric in ("auroc", "fpr95"))
    return f"{100 * auroc['value']:.1f} ({100 * missed['value']:.1f})"


def _shown(row: Row) -> str:
    if row["metric"] in ("set_size", "temperature"):
        return f"{row['value']:.2f}"
    return percent(row["value"], row["low"], row["high"])


def kept_in(folder: Path) -> dict[str, dict[str, Any]]:
    """What all networks answered."""
    found = {}
    for model in MODELS:
        with np.load(folder / f"{model}.npz") as kept:
            found[model] = dict(kept)
    return found


def main() -> None:
    """Write a CSV file, where there is a run, and fill README.md."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--fresh", action="store_true", help="the run that plan.md judges")
    parser.add_argument("--trainings", action="store_true", help="the same of several trainings")
    given = parser.parse_args()
    if given.run is not None and given.trainings:
        found = {place.name: kept_in(place) for place in given.run.iterdir()}
        write_atomic(HERE / "trainings.csv", csv_text(training_rows(found)))
    elif given.run is not None and given.fresh:
        write_atomic(HERE / "claims.csv", csv_text(claim_rows(kept_in(given.run))))
    elif given.run is not None:
        write_atomic(HERE / "scores.csv", csv_text(rows_of(load_results(given.run))))
    fill(HERE / "README.md", from_data(*(read_csv(HERE / f"{name}.csv") for name in FILES)))


if __name__ == "__main__":
    main()
