"""Tables at the published settings: every method, the published order, calibration, corruption.

A run keeps what each model said about each image, which is too large for this tree. What the tables
need of it, paired differences, calibration and means, stands in CSV files, which fill the page.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from searched import VERDICTS
from study import EXPERT_OF, SWITCHED

from stockpot.results.contrast import Contrast, mean_contrast, paired
from stockpot.results.schema import CellResult, Score
from stockpot.results.score_tables import (
    TaskRow,
    corruption_means,
    mean_score,
    score_rows,
    table_of_rows,
    task_tables,
)
from stockpot.results.store import load_results
from stockpot.results.tables import markdown, percent, percents

BASE, EXPERTS = "clip-base", "each expert on its own task"
ORDER = (BASE, "average", "task_arithmetic-scale=0.3", "ties", "regmean", "adamerging-layer",
         "wemoe", "experts")  # fmt: skip
ENTROPY = (BASE, "average", "regmean", "smile", "adamerging-layer", "adamerging-layer-fast",
           "wemoe", "wemoe-fast")  # fmt: skip
Row = dict[str, Any]


def fusion(rows: Sequence[Row], gains: Sequence[Row]) -> str:
    """Every method on every task, and how far it lies above the base."""
    table = table_of_rows(rows)
    over = {row["second"]: str(_contrast(row)) for row in gains if row["first"] == BASE}
    body = []
    for row in table.rows:
        if "scale=" in row.model and not row.model.endswith("scale=0.3"):
            continue
        name = "experts" if row.model == EXPERTS else row.model
        shown = row.model.replace("-scale=0.3", " (scale 0.3)")
        scores = (percents(score, interval=False) for score in row.scores)
        body.append([shown, *scores, percents(row.mean), over.get(name, "")])
    return markdown(["method", *table.tasks, "mean [95 %]", "over the base [95 %]"], body)


def order(gains: Sequence[Row]) -> str:
    """Whether each method of the published order beats the one before it."""
    known = {(row["first"], row["second"]): _contrast(row) for row in gains}
    body = [
        [f"{first} < {second}", str(found), VERDICTS[found.verdict]]
        for first, second in itertools.pairwise(ORDER)
        if (found := known.get((first, second)))
    ]
    return markdown(["published order", "difference of means, points [95 %]", "here"], body)


def _contrast(row: Row) -> Contrast:
    return Contrast(row["gain"], row["gain_low"], row["gain_high"])


def entropy(rows: Sequence[Row]) -> str:
    """Accuracy, calibration and loss of methods that learn by entropy, and of others."""
    told = {
        (row["model"], row["task"]):
        f"{percent(row['accuracy'])} / {percent(row['ece'])} / {row['nll']:.2f}"
        for row in rows
    }  # fmt: skip
    body = [[name, *(told.get((name, task), "-") for task in EXPERT_OF)] for name in ENTROPY]
    return markdown(["method", *EXPERT_OF], body)


def robustness(conditions: Sequence[Row], totals: Sequence[Row]) -> str:
    """Accuracy by corruption, the mean over its severities, and over all corruptions."""
    names = list(dict.fromkeys(row["task"].rpartition(" ")[0] for row in conditions))
    body = []
    for total in totals:
        own = [row for row in conditions if row["model"] == total["model"]]
        ends = {key: [total[key], total[f"{key}_low"], total[f"{key}_high"]]
                for key in ("clean", "mean")}  # fmt: skip
        found = [[r["accuracy"] for r in own if r["task"].startswith(f"{name} ")] for name in names]
        by_name = [percent(sum(values) / len(values)) for values in found]
        body.append([total["model"], percent(*ends["clean"]), *by_name, percent(*ends["mean"])])
    return markdown(["method", "clean", *names, "mean without spatter [95 %]"], body)


class Fused:
    """The results of recipes/clip_fusion.yaml."""

    def __init__(self, runs: Path) -> None:
        results = load_results(runs / "clip_fusion")
        self.table = next(found for found in task_tables(results) if found.measure == "clean")
        self.cells = {(cell.key.model, cell.key.data): cell for cell in results}
        for task, expert in EXPERT_OF.items():
            self.cells["experts", task] = self.cells[expert, task]
        found = [*self.table.rows, self.experts()]
        if (runs / "clip_switched").is_dir():
            found += switched(load_results(runs / "clip_switched"), self.table.tasks)
        self.rows = sorted(
            (row for row in found if row.mean is not None),  # a run may still be under way
            key=lambda row: row.mean.value if row.mean else 0.0,
        )

    def experts(self) -> TaskRow:
        """Each task by its own expert: what a perfect fusion would reach."""
        scores = [self.cells["experts", task].score("accuracy") for task in self.table.tasks]
        return TaskRow(EXPERTS, scores, mean_score(scores))

    def gain(self, first: str, second: str) -> Contrast | None:
        """The mean over tasks of what the second is better than the first, on the same images."""
        places = [[(name, task) for name in (second, first)] for task in EXPERT_OF]
        if not all(place in self.cells for pair in places for place in pair):
            return None
        answers = [[self.cells[place].outcome("correct") for place in pair] for pair in places]
        return mean_contrast([paired(*pair) for pair in answers])

    def gains(self) -> list[Row]:
        """Every method over the base, and over the one before it in the published order."""
        models = [row.model for row in self.table.rows if row.model != BASE]
        pairs = [*((BASE, name) for name in (*models, "experts")), *itertools.pairwise(ORDER)]
        return [
            {"first": first, "second": second, "gain": round(found.value, 4),
             "gain_low": round(found.low, 4), "gain_high": round(found.high, 4)}
            for first, second in dict.fromkeys(pairs)
            if (found := self.gain(first, second))
        ]  # fmt: skip

    def calibration(self) -> list[Row]:
        """Accuracy, expected calibration error and loss."""
        keys = ("accuracy", "ece", "nll")
        return [
            {"model": name, "task": task}
            | {key: round(self.cells[name, task].score(key).value, 4) for key in keys}
            for name, task in itertools.product(ENTROPY, EXPERT_OF)
            if (name, task) in self.cells
        ]


def switched(results: Sequence[CellResult], tasks: Sequence[str]) -> list[TaskRow]:
    """A row for each method that makes a model per task."""
    found = {(cell.key.model, cell.key.data): cell for cell in results}
    rows = []
    for method in SWITCHED:
        scores = [found[f"{method}-{EXPERT_OF[t]}", t].score("accuracy") for t in tasks]
        rows.append(TaskRow(f"{method} (a model per task)", scores, mean_score(scores)))
    return rows


def corruption_rows(results: Sequence[CellResult]) -> tuple[list[Row], list[Row]]:
    """Accuracy by corruption and severity; and clean and over all corruptions, with intervals."""
    means = corruption_means(results)
    if means is None:
        raise SystemExit("the robustness run has no corruption results")
    total = next(found for found in task_tables(results) if found.measure == "corruption")
    totals = {row.model: row.mean for row in total.rows}
    corrupted = []
    for row in (row for row in means.rows if None not in row.scores):
        clean = [cell.score("accuracy") for cell in results if cell.key.model == row.model]
        ends = {**_ends("clean", mean_score(clean)), **_ends("mean", totals[row.model])}
        corrupted.append({"model": row.model, **ends})
    columns = [f"{name} {severity}" for name, severity in means.conditions]
    return score_rows(columns, means.rows), corrupted


def _ends(name: str, score: Score | None) -> Row:
    if score is None:
        return {}
    ends = {"": score.value, "_low": score.ci_low, "_high": score.ci_high}
    return {f"{name}{end}": round(value or 0, 4) for end, value in ends.items()}
