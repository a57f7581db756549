"""Reading the results that `study.py` left: cells, scores, and one line of the CSV for each."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from settings import AGAIN, NETS

from stockpot.results.contrast import paired
from stockpot.results.schema import CellResult, Score
from stockpot.results.store import load_results
from stockpot.results.tables import percent

DATA = ("mnist", "cifar10", "icons")
METRICS = (
    "accuracy", "coverage", "validation_rate", "perturbed_accuracy", "fmr", "matched_fmr", "steps",
    "code_flip_rate", "mask_sparsity", "mask_score",
)  # fmt: skip
Rows = list[dict[str, object]]
Flags = NDArray[np.bool_]


def cells(folder: Path) -> list[CellResult]:
    """The results of one part in the order of the settings, or none."""
    found = load_results(folder) if (folder / "results").is_dir() else []
    order = [name for names in (*NETS.values(), *AGAIN.values()) for name in names]
    return sorted(found, key=lambda c: order.index(c.key.model) if c.key.model in order else 99)


def trained_on(folder: Path) -> list[CellResult]:
    """A network before and after it was trained on, plainly and on generated images."""
    trained = cells(folder / "augment")
    before = [
        cell
        for cell in cells(folder / "search-as_published")
        if any(after.key.model.startswith(f"{cell.key.model}-") for after in trained)
    ]
    return [*before, *trained]


def find(cell: CellResult, metric: str) -> Score | None:
    """A score of all images together."""
    for score in cell.scores:
        if score.metric == metric and not {"class", "turn"} & score.condition.keys():
            return score
    return None


def text(cell: CellResult, metric: str, *, interval: bool = True) -> str:
    """A score as a percentage, or a dash."""
    score = find(cell, metric)
    if score is None:
        return "-"
    return percent(score.value, *((score.ci_low, score.ci_high) if interval else ()))


def plain(cell: CellResult, metric: str) -> str:
    """A score that is no percentage."""
    score = find(cell, metric)
    return "-" if score is None else f"{score.value:.1f}"


def given_back(cell: CellResult) -> str:
    """Right about the first candidate, the plain reconstruction, over the validated images."""
    for score in cell.scores:
        if score.metric == "fooled" and score.condition["turn"] == 0:
            low, high = score.ci_low, score.ci_high
            return percent(1 - score.value, 1 - (high or 0), 1 - (low or 0))
    return "-"


def of_validated(cell: CellResult) -> str:
    """SA over the validated images: what the first candidate and PA compare with."""
    correct, kept = flags(cell, "correct", "validated")
    return percent(float(correct[kept].mean())) if kept.any() else "-"


def flags(cell: CellResult, *names: str) -> list[Flags]:
    """What happened to every image."""
    return [cell.outcome(name) for name in names]


def difference(
    first: CellResult, second: CellResult, what: str = "withstood"
) -> tuple[float, float, float]:
    """PA of the second less PA of the first over images validated in both, resampled together.

    With `what="correct"` the same of SA, over all images.
    """
    (a, kept_a), (b, kept_b) = (flags(c, what, "validated") for c in (first, second))
    gain = b.astype(float) - a.astype(float)
    gain = gain if what == "correct" else gain[kept_a & kept_b]
    return tuple(paired(gain, np.zeros(len(gain))))


def rungs(folder: Path, kind: str) -> list[tuple[float, CellResult]]:
    """The cells at several step sizes or budgets, in order."""
    found = [
        (float(part.name.split("-", 1)[1]), cell)
        for part in folder.glob(f"{kind}-*")
        for cell in cells(part)
    ]
    if kind == "budget":
        # The budget of the main table stands among the step sizes: at the generator's own.
        found += [(float(c.key.params["budget"]), c) for c in cells(folder / "step-0.01")]
    return sorted(found, key=lambda pair: pair[0])


def row(data: str, setting: str, cell: CellResult) -> dict[str, object]:
    """One line of the CSV."""
    made: dict[str, object] = {"data": data, "setting": setting, "model": cell.key.model}
    for metric in METRICS:
        score = find(cell, metric)
        for name, value in (
            (metric, score.value if score else None),
            (f"{metric}_low", score.ci_low if score else None),
            (f"{metric}_high", score.ci_high if score else None),
        ):
            made[name] = "" if value is None else round(value, 4)
    made["n"] = cell.data.n
    return made


def matched_transfer(folder: Path) -> tuple[list[str], list[str], NDArray[np.float64]] | None:
    """Makers, viewers, and the matrix with the viewers' SA taken over the validated images.

    Which images are validated depends on generator and oracle alone, so all makers share them.
    """
    file = folder / "transfer.json"
    if not file.is_file():
        return None
    table = json.loads(file.read_text())
    ratio = {}
    for cell in cells(folder / "main-vqgan"):
        correct, kept = flags(cell, "correct", "validated")
        ratio[cell.key.model] = correct.mean() / correct[kept].mean()
    scale = np.array([ratio[name] for name in table["viewers"]])
    return table["makers"], table["viewers"], np.array(table["fmr"]) * scale
