"""Scores anew from saved outcomes: other statistics on the same answers, without any model.

A measure saves which images were right. From that its scores are computed by the functions that
the measure itself uses. What needs more than that (losses, steps, the classes of the images) keeps
its value; shares of images get their interval anew, since value and number say it all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from stockpot.dynamic.task import Rules
from stockpot.errors import UserError
from stockpot.files import write_atomic
from stockpot.measure.corruption_scores import Grid, grid_scores
from stockpot.measure.dynamic.outcomes import Outcomes, headline
from stockpot.measure.mce import NAMED_BASELINES, named_baseline
from stockpot.measure.measurement import proportion, with_interval
from stockpot.measure.shift.shift import Line, outside_scores
from stockpot.results.provenance import package_version
from stockpot.results.schema import CellResult, Score
from stockpot.results.statistics import wilson
from stockpot.results.store import read_result, result_files

Scores = list[Score]


@dataclass(frozen=True)
class Rescored:
    """One result file: how many scores stand on saved outcomes, and which of them changed."""

    path: Path
    computed: int
    kept: int
    changes: tuple[str, ...]


def rescore(*sources: str | Path) -> list[Rescored]:
    """Compute the scores of all result files anew; files with a changed score are written anew.

    Args:
        sources: run folders, their `results` folders, or result files.

    Raises:
        UserError: none of the files has outcomes.
    """
    paths = result_files(*sources)
    results = {path: read_result(path) for path in paths}
    if not any(result.outcomes for result in results.values()):
        raise UserError(
            f"{', '.join(map(str, sources))}: none of {len(paths)} results has saved outcomes to "
            "compute scores from.",
            hint="Measure again.",
        )
    return [_write(path, result) for path, result in results.items() if result.outcomes]


def rescored(result: CellResult) -> tuple[CellResult, int, tuple[str, ...]]:
    """The result with new scores, how many stand on outcomes, and what changed."""
    scoring = SCORINGS.get(result.key.measure, _accuracy)
    found = {_about(score): score for score in scoring(result)}
    scores, changes, computed = [], [], 0
    for old in result.scores:
        new = found.get(_about(old))
        computed += new is not None
        # What a measure says of a score besides its number stays.
        kept = {"unit": old.unit, "higher_is_better": old.higher_is_better}
        new = _interval_anew(old) if new is None else new.model_copy(update=kept)
        scores.append(new)
        if new != old:
            changes.append(f"{_name(old)}: {_shown(old)} -> {_shown(new)}")
    if not changes:
        return result, computed, ()
    count = f"{len(changes)} of {len(scores)} scores changed"
    note = f"scored anew from saved outcomes by stockpot {package_version('stockpot')}: {count}"
    update = {"scores": scores, "notes": [*result.notes, note]}
    return result.model_copy(update=update), computed, tuple(changes)


def _write(path: Path, result: CellResult) -> Rescored:
    new, computed, changes = rescored(result)
    if changes:
        write_atomic(path, new.model_dump_json(indent=1) + "\n")
    return Rescored(path, computed, len(result.scores) - computed, changes)


def _accuracy(result: CellResult) -> Scores:
    return [
        proportion("accuracy", result.outcome("correct"), _plain(score))
        for score in result.scores
        if score.metric == "accuracy" and "correct" in result.outcomes
    ]


def _adversarial(result: CellResult) -> Scores:
    names = {"robust_accuracy": "robust:{norm}:{eps}", "union_accuracy": "union"}
    return _accuracy(result) + [
        proportion(
            score.metric,
            result.outcome(names[score.metric].format(**score.condition)),
            _plain(score),
        )
        for score in result.scores
        if score.metric in names
    ]


def _corruption(result: CellResult) -> Scores:
    cells = {
        (str(score.condition["corruption"]), int(str(score.condition["severity"])))
        for score in result.scores
        if score.metric == "error"
    }
    order = [name.rpartition(":") for name in result.outcomes if name != "correct"]
    grid = Grid(
        result.outcome("correct"),
        {
            (name, int(severity)): result.outcome(f"{name}:{severity}")
            for name, _, severity in order
            if (name, int(severity)) in cells
        },
    )
    asked = str(result.key.params.get("baseline", "none"))
    known = asked in NAMED_BASELINES
    scores = grid_scores(grid, named_baseline(asked) if known else None, seed=result.key.seed)
    # The errors of a measured baseline are not in the file: what is divided by them stays.
    return [score for score in scores.scores if known or "baseline" not in score.condition]


def _shift(result: CellResult) -> Scores:
    outside = {
        name.removeprefix("outside:"): result.outcome(name)
        for name in result.outcomes
        if name.startswith("outside:")
    }
    line = result.key.params.get("line")
    return outside_scores(result.outcome("correct"), outside, Line(*line) if line else None)


def _dynamic(result: CellResult) -> Scores:
    named = [each.name for each in fields(Outcomes)]
    nothing = np.zeros(result.data.n, dtype=np.int64)
    columns: dict[str, Any] = dict.fromkeys(named, nothing)
    columns |= {"flips": np.full(result.data.n, np.nan)}
    # Older files know fewer facts of an image; scores that stand on others are not in them.
    flags = ("known", "reconstructed", "perturbed", "moved")
    columns |= dict.fromkeys(flags, nothing.astype(bool))
    columns |= {name: result.outcome(name) for name in named if name in result.outcomes}
    condition = {key: str(value) for key, value in result.score("accuracy").condition.items()}
    first = result.key.params.get("first", "reconstruction")
    rules = Rules(budget=2, first=first)
    found = headline(Outcomes(**columns), condition, rules, seed=result.key.seed)
    # How many candidates were accepted, and how often anybody was asked, is not saved.
    unknown = ("steps", "budget_spent", "model_queries", "oracle_queries")
    return [score for score in found if score.metric not in unknown]


def _oracle_audit(result: CellResult) -> Scores:
    names = {"reconstruction_accuracy": "validated", "searched_accuracy": "withstood"}
    return _accuracy(result) + [
        proportion(score.metric, result.outcome(names[score.metric]), _plain(score))
        for score in result.scores
        if score.metric in names
    ]


SCORINGS: dict[str, Callable[[CellResult], Scores]] = {
    "adversarial": _adversarial,
    "corruption": _corruption,
    "shift": _shift,
    "dynamic": _dynamic,
    "oracle_audit": _oracle_audit,
}
"""Measures of which more than the accuracy stands on saved outcomes."""


def _interval_anew(score: Score) -> Score:
    if not score.ci_method.startswith("wilson-9"):
        return score
    interval = wilson(round(score.value * score.n), score.n)
    return with_interval(
        score.metric,
        score.value,
        score.n,
        interval,
        better=score.higher_is_better,
        unit=score.unit,
        condition=_plain(score),
    )


def _plain(score: Score) -> dict[str, str | int | float]:
    return {key: value for key, value in score.condition.items() if value is not None}


def _about(score: Score) -> tuple[str, tuple[tuple[str, str], ...]]:
    return score.metric, tuple(sorted((k, str(v)) for k, v in score.condition.items()))


def _name(score: Score) -> str:
    about = ", ".join(f"{key}={value}" for key, value in score.condition.items())
    return f"{score.metric} ({about})" if about else score.metric


def _shown(score: Score) -> str:
    if score.ci_low is None or score.ci_high is None:
        return f"{score.value:.4g}"
    return f"{score.value:.4g} [{score.ci_low:.4g}, {score.ci_high:.4g}]"
