"""Scores gathered into tables: models x tasks, corruptions x severities, detectors x foreign sets.

The mean over tasks is the plain mean, as is customary in model merging. Its interval comes from
those of the tasks: on independent images the half-widths add in squares, and where tasks show the
same images (sets of one size whose answers agree by row) they add as far as these agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from stockpot.results.groups import Shares, shares_right
from stockpot.results.schema import CellResult, Score
from stockpot.results.several_sets import mean_half_width

_METRICS = {"clean": "accuracy", "corruption": "mean_corruption_accuracy"}
"""Which score of a measure stands in the table."""


class TaskRow(NamedTuple):
    """One model: its score on each task (none where it was not measured) and the mean."""

    model: str
    scores: list[Score | None]
    mean: Score | None


class TaskTable(NamedTuple):
    """Models down, tasks across."""

    measure: str
    metric: str
    tasks: list[str]
    rows: list[TaskRow]


def task_tables(results: Sequence[CellResult]) -> list[TaskTable]:
    """A table for every measure that has seen at least one model on two or more datasets."""
    tables = []
    for measure, metric in _METRICS.items():
        found: dict[str, dict[str, Score]] = {}
        right: dict[tuple[str, str], Shares | None] = {}
        for cell in results:
            if cell.key.measure == measure:
                score = next((s for s in cell.scores if _is_overall(s, metric)), None)
                if score:
                    found.setdefault(cell.key.model, {})[cell.key.data] = score
                    right[cell.key.model, cell.key.data] = shares_right(cell)
        tasks = list(dict.fromkeys(task for scores in found.values() for task in scores))
        if len(tasks) < 2 or not any(len(scores) > 1 for scores in found.values()):
            continue
        rows = []
        for model, scores in found.items():
            known = [scores.get(task) for task in tasks]
            shares = [right.get((model, task)) for task in tasks]
            rows.append(TaskRow(model, known, mean_score(known, shares)))
        tables.append(TaskTable(measure, metric, tasks, rows))
    return tables


def mean_score(scores: Sequence[Score | None], right: Sequence[Shares | None] = ()) -> Score | None:
    """The mean of several scores with its interval; none unless all are there.

    Args:
        scores: of the tasks.
        right: how right the model is about each image of each task; without, or where it is not
            known, tasks count as independent.
    """
    known = [score for score in scores if score is not None]
    if not known or len(known) < len(scores):
        return None
    value = sum(score.value for score in known) / len(known)
    first = known[0]
    low = high = None
    if all(score.ci_low is not None and score.ci_high is not None for score in known):
        # What has no record shares nothing with the others: an empty set is like none.
        sets = [np.zeros(0) if part is None else part for part in right or [None] * len(known)]
        down = mean_half_width([score.value - (score.ci_low or 0.0) for score in known], sets)
        up = mean_half_width([(score.ci_high or 0.0) - score.value for score in known], sets)
        low, high = max(0.0, value - down), min(1.0, value + up)
    return Score(
        metric=f"mean_{first.metric}",
        value=value,
        n=sum(score.n for score in known),
        ci_low=low,
        ci_high=high,
        ci_method="sum-of-squares-95" if low is not None else "",
        higher_is_better=first.higher_is_better,
        unit=first.unit,
        condition={"tasks": len(known)},
    )


def score_rows(tasks: Sequence[str], rows: Iterable[TaskRow]) -> list[dict[str, Any]]:
    """Scores as rows of a CSV file: model, task, accuracy, ci_low, ci_high, n."""
    return [
        {"model": row.model, "task": task, "accuracy": round(score.value, 6),
         "ci_low": round(score.ci_low or 0, 6), "ci_high": round(score.ci_high or 0, 6),
         "n": score.n}
        for row in rows for task, score in zip(tasks, row.scores, strict=True) if score
    ]  # fmt: skip


def table_of_rows(rows: Iterable[Mapping[str, Any]]) -> TaskTable:
    """The inverse of `score_rows`, with the means over tasks."""
    found: dict[str, dict[str, Score]] = {}
    for row in rows:
        ends = {"ci_low": row["ci_low"], "ci_high": row["ci_high"]}
        score = Score(metric="accuracy", value=row["accuracy"], n=int(row["n"]), **ends)
        found.setdefault(row["model"], {})[row["task"]] = score
    tasks = list(dict.fromkeys(task for scores in found.values() for task in scores))
    known = {model: [scores.get(task) for task in tasks] for model, scores in found.items()}
    body = [TaskRow(model, scores, mean_score(scores)) for model, scores in known.items()]
    return TaskTable("clean", "accuracy", tasks, body)


def _is_overall(score: Score, metric: str) -> bool:
    return score.metric == metric and not {"class", "severity"} & score.condition.keys()


class CorruptionMeans(NamedTuple):
    """Models down, (corruption, severity) across: accuracies, averaged over the tasks."""

    conditions: list[tuple[str, int]]
    tasks: list[str]
    rows: list[TaskRow]


def corruption_means(results: Sequence[CellResult]) -> CorruptionMeans | None:
    """Accuracy under each corruption and severity, averaged over two or more tasks."""
    found: dict[str, dict[tuple[str, int], dict[str, Score]]] = {}
    for cell in results:
        for score in cell.scores:
            severity = score.condition.get("severity")
            if score.metric == "error" and isinstance(severity, int):
                key = (str(score.condition["corruption"]), severity)
                place = found.setdefault(cell.key.model, {}).setdefault(key, {})
                place[cell.key.data] = _as_accuracy(score)
    tasks = list(
        dict.fromkeys(task for grid in found.values() for by in grid.values() for task in by)
    )
    if len(tasks) < 2:
        return None
    conditions = list(dict.fromkeys(key for grid in found.values() for key in grid))
    rows = []
    for model, grid in found.items():
        means = [mean_score([grid.get(key, {}).get(t) for t in tasks]) for key in conditions]
        rows.append(TaskRow(model, means, None))
    return CorruptionMeans(conditions, tasks, rows)


def _as_accuracy(score: Score) -> Score:
    low = None if score.ci_high is None else 1 - score.ci_high
    high = None if score.ci_low is None else 1 - score.ci_low
    changed = {"metric": "accuracy", "value": 1 - score.value, "ci_low": low, "ci_high": high}
    return score.model_copy(update=changed | {"higher_is_better": True})


class CorruptionTable(NamedTuple):
    """One model's errors by corruption and severity, and CE where a baseline gave one."""

    model: str
    severities: list[int]
    rows: list[tuple[str, list[Score | None], Score | None]]
    """Corruption, its error at each severity, its CE."""
    trained: dict[str, str]
    """Those of the corruptions that the model was trained on, and by what."""


def corruption_tables(cells: Sequence[CellResult]) -> list[CorruptionTable]:
    """A table for every cell that measured corruptions."""
    tables = []
    for cell in cells:
        errors: dict[str, dict[int, Score]] = {}
        ratios: dict[str, Score] = {}
        for score in cell.scores:
            name = str(score.condition.get("corruption", ""))
            severity = score.condition.get("severity")
            if score.metric == "error" and isinstance(severity, int):
                errors.setdefault(name, {})[severity] = score
            elif score.metric == "ce":
                ratios[name] = score
        if not errors:
            continue
        severities = sorted({severity for found in errors.values() for severity in found})
        rows = [
            (name, [found.get(severity) for severity in severities], ratios.get(name))
            for name, found in errors.items()
        ]
        trained = {name: why for name, why in cell.model.trained_on.items() if name in errors}
        tables.append(CorruptionTable(cell.key.model, severities, rows, trained))
    return tables


class DetectionTable(NamedTuple):
    """One model: how well each detector tells foreign sets, and near and far ones on average."""

    model: str
    sets: list[str]
    rows: list[tuple[str, list[tuple[Score | None, Score | None]]]]
    """Detector, and for each set AUROC and FPR at 95 % TPR."""


def detection_tables(cells: Sequence[CellResult]) -> list[DetectionTable]:
    """A table for every cell that measured the detection of foreign images."""
    tables = []
    for cell in cells:
        found: dict[str, dict[str, dict[str, Score]]] = {}
        for score in cell.scores:
            metric = score.metric.removeprefix("near_").removeprefix("far_")
            if "detector" in score.condition and metric in ("auroc", "fpr95"):
                distance = str(score.condition["distance"])
                # Of one set the mean is the set itself.
                if score.condition.get("sets") == 1:
                    continue
                name = str(score.condition.get("set", f"{distance} mean"))
                detector = found.setdefault(str(score.condition["detector"]), {})
                detector.setdefault(name, {})[metric] = score
        sets = list(dict.fromkeys(name for by_set in found.values() for name in by_set))
        rows = [
            (detector, [(both.get(name, {}).get("auroc"), both.get(name, {}).get("fpr95"))
                        for name in sets])
            for detector, both in found.items()
        ]  # fmt: skip
        if rows:
            tables.append(DetectionTable(cell.key.model, sets, rows))
    return tables
