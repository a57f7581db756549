"""Scores from saved outcomes: what a measure says once it is known which images were right.

They come from the functions that the measures themselves use. What needs more than that (losses,
steps, the classes of the images) has no score here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stockpot.corrupt.between import plain
from stockpot.corrupt.ranges import family_of_names
from stockpot.dynamic.task import Rules
from stockpot.measure.corruption_scores import Grid, grid_scores
from stockpot.measure.dynamic.outcomes import Outcomes, headline
from stockpot.measure.mce import IMAGENET_C, NAMED_BASELINES, named_baseline
from stockpot.measure.measurement import proportion
from stockpot.measure.shift.shift import INSIDE, Line, outside_scores
from stockpot.results.packed import pack_bits, pack_groups, pack_labels
from stockpot.results.schema import CellResult, Score

Scores = list[Score]
OUTSIDE = "outside:"
"""How names of records begin that are about a set other than the data."""


def scores_from_outcomes(result: CellResult) -> Scores:
    """All scores that stand on saved outcomes."""
    return SCORINGS.get(result.key.measure, _accuracy)(result)


def part_of(result: CellResult, members: NDArray[np.bool_]) -> CellResult:
    """The result on some of its images.

    Records of sets outside stay as they are; those of other images of the data, such as a sample,
    do not tell which of the members they are about, and fall away.
    """
    outcomes, sizes = {}, {}
    for name, bits in result.outcomes.items():
        if name.startswith(OUTSIDE):
            outcomes[name], sizes[name] = bits, len(result.outcome(name))
        elif name not in result.outcome_sizes:
            outcomes[name] = pack_bits(result.outcome(name)[members])
    groups = result.image_groups
    own = None if groups is None else [str(group) for group in groups[members]]
    update: dict[str, Any] = {
        "data": result.data.model_copy(update={"n": int(members.sum())}),
        "outcomes": outcomes,
        "outcome_sizes": sizes,
        "groups": pack_groups(own),
    }
    if (labels := result.image_labels) is not None:
        kept, names = pack_labels(labels[members], result.label_names)
        update |= {"labels": kept, "label_names": names}
    return result.model_copy(update=update)


def about(score: Score) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Metric and condition: what a score is about, whatever its value."""
    return score.metric, tuple(sorted((k, str(v)) for k, v in score.condition.items()))


def plain_condition(score: Score) -> dict[str, str | int | float]:
    """A score's condition without what is not known of it."""
    return {key: value for key, value in score.condition.items() if value is not None}


def _shares(result: CellResult, names: dict[str, str]) -> Scores:
    """The scores of these metrics, each the share of images in the record of that name."""
    found = []
    for score in result.scores:
        name = names.get(score.metric, "").format_map(_Known(score.condition))
        # What is about a set of its own (cue conflicts) has its own records, or none.
        if name in result.outcomes and "set" not in score.condition:
            groups = None if name in result.outcome_sizes else result.image_groups
            flags, condition = result.outcome(name), plain_condition(score)
            found.append(proportion(score.metric, flags, condition, groups=groups))
    return found


class _Known(dict[str, object]):
    """Conditions by name; what is not known is nothing."""

    def __missing__(self, key: str) -> str:
        return ""


def _accuracy(result: CellResult) -> Scores:
    return _shares(result, {"accuracy": "correct"})


def _adversarial(result: CellResult) -> Scores:
    robust = {"robust_accuracy": "robust:{norm}:{eps}", "union_accuracy": "union"}
    return _shares(result, {"accuracy": "correct", **robust})


def _stream(result: CellResult) -> Scores:
    clean = "correct" if "correct" in result.outcomes else "{corruption}:{severity}"
    return _shares(result, {"accuracy": clean})


def _audit(result: CellResult) -> Scores:
    return _shares(result, {"accuracy": "correct", "audited_accuracy": "audited"})


def _transfer(result: CellResult) -> Scores:
    return _shares(result, {"accuracy": "correct", "transfer_accuracy": "transfer:{maker}"})


def _oracle_audit(result: CellResult) -> Scores:
    other = {"reconstruction_accuracy": "validated", "searched_accuracy": "withstood"}
    return _shares(result, {"accuracy": "correct", **other})


def _published(result: CellResult) -> Scores:
    return _shares(result, {"perturbed_accuracy": "correct"})


def _corruption(result: CellResult) -> Scores:
    cells = {
        (str(score.condition["corruption"]), plain(float(str(score.condition["severity"]))))
        for score in result.scores
        if score.metric == "error"
    }
    order = [name.rpartition(":") for name in result.outcomes if name != "correct"]
    grid = Grid(
        result.outcome("correct"),
        {
            (name, plain(float(severity))): result.outcome(f"{name}:{severity}")
            for name, _, severity in order
            if (name, plain(float(severity))) in cells
        },
        result.image_groups,
    )
    asked = str(result.key.params.get("baseline", "none"))
    known = asked in NAMED_BASELINES
    family = family_of_names(name for name, _ in cells) or IMAGENET_C
    usual = named_baseline(asked) if known else None
    scores = grid_scores(grid, usual, seed=result.key.seed, family=family)
    # The errors of a measured baseline are not in the file: what is divided by them stays.
    return [score for score in scores.scores if known or "baseline" not in score.condition]


def _shift(result: CellResult) -> Scores:
    outside = {
        name.removeprefix(OUTSIDE): result.outcome(name)
        for name in result.outcomes
        if name.startswith(OUTSIDE)
    }
    line = result.key.params.get("line")
    groups = {INSIDE: result.image_groups}
    return outside_scores(result.outcome("correct"), outside, Line(*line) if line else None, groups)


def _dynamic(result: CellResult) -> Scores:
    named = [each.name for each in fields(Outcomes)]
    nothing = np.zeros(result.data.n, dtype=np.int64)
    columns: dict[str, Any] = dict.fromkeys(named, nothing)
    columns |= {"flips": np.full(result.data.n, np.nan), "groups": result.image_groups}
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


SCORINGS: dict[str, Callable[[CellResult], Scores]] = {
    "adversarial": _adversarial,
    "audit": _audit,
    "corruption": _corruption,
    "shift": _shift,
    "dynamic": _dynamic,
    "oracle_audit": _oracle_audit,
    "published": _published,
    "stream": _stream,
    "transfer": _transfer,
}
"""Measures of which more than the accuracy stands on saved outcomes."""
