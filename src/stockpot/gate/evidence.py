"""What a result says about a score that a rule names: its value, and what each image says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stockpot.errors import BadParameterError, did_you_mean
from stockpot.gate.rule import Target
from stockpot.results.schema import CellResult, Score

Values = NDArray[np.float64]
_RECORDS = {
    "accuracy": "correct",
    "union_accuracy": "union",
    "audited_accuracy": "audited",
    "robust_accuracy": "robust:{norm}:{eps}",
    "error": "{corruption}:{severity}",
}
"""Scores that are the share of images in a record; `error` is what is left of it."""
_RATIOS = ("mce", "relative_mce", "ce", "relative_ce")
"""Scores under corruption that a baseline divides."""
_MEAN = "mean_corruption_accuracy"
_PARTS = {"class", "corruption", "severity", "turn", "group", "curve", "detector", "perturbation"}


class Evidence(NamedTuple):
    """One score of one result."""

    value: float
    higher_is_better: bool
    images: Values | None
    """What each image adds to the mean; None where the score is not a mean over images."""
    score: Score | None
    """As it is saved, where single images are not known."""


def evidence(cell: CellResult, target: Target) -> Evidence:
    """The score of a result that a rule means.

    Raises:
        BadParameterError: there is none, or more than one.
    """
    images, better = _images(cell, target)
    if images is not None:
        return Evidence(float(images.mean()), better, images, None)
    score = _score(cell, target)
    if score.higher_is_better is None:
        raise BadParameterError(f"{target}: no direction of this score is better.")
    return Evidence(score.value, score.higher_is_better, None, score)


def conditions(cell: CellResult) -> dict[str, Values]:
    """Who is right under each corruption (severities together) or norm."""
    found: dict[str, list[Values]] = {}
    for name in _whole(cell):
        if ":" in name:
            place = name.rpartition(":")[0] if cell.key.measure == "corruption" else name
            found.setdefault(place, []).append(cell.outcome(name).astype(np.float64))
    return {name: np.mean(parts, axis=0) for name, parts in found.items()}


def by_image(measure: str, target: Target) -> bool:
    """Whether a score is, as far as its name tells, a mean over images, which come singly."""
    names = [*_RECORDS, _MEAN]
    if any(target.metric in _aliases(name, measure) for name in names):
        return True
    return measure == "corruption" and target.metric not in _RATIOS


def _images(cell: CellResult, target: Target) -> tuple[Values | None, bool]:
    """What each image says, and whether more of it is better."""
    measure, metric, said = cell.key.measure, target.metric, set(target.where)
    if metric in _aliases(_MEAN, measure) and measure == "corruption" and not said:
        copies = list(_mean_over(cell))
        return (_mean(cell, copies), True) if copies else (None, True)
    for name, record in _RECORDS.items():
        # What is said must have a place in the record's name; else a saved score is meant.
        if metric in _aliases(name, measure) and all(f"{{{key}}}" in record for key in said):
            places = [place for place in _whole(cell) if _fits(place, record, target)]
            if len(places) == 1:
                right = _mean(cell, places)
                return (1 - right, False) if name == "error" else (right, True)
    if measure == "corruption" and said <= {"severity"}:
        severity = target.where.get("severity")
        copies = [
            place
            for place in _whole(cell)
            if place.rpartition(":")[0] == metric and severity in (None, place.rpartition(":")[2])
        ]
        if copies:
            return _mean(cell, copies), True
    return None, True


def _fits(place: str, record: str, target: Target) -> bool:
    """Whether a record is the one that is meant: parts that are not said may be anything."""
    wanted, given = record.split(":", 2), place.split(":", 2)
    return len(wanted) == len(given) and all(
        part == own or (part[0] == "{" and target.where.get(part[1:-1], own) == own)
        for part, own in zip(wanted, given, strict=True)
    )


def _mean(cell: CellResult, places: Iterable[str]) -> Values:
    found: Values = np.mean([cell.outcome(place) for place in places], axis=0)
    return found


def _mean_over(cell: CellResult) -> list[str]:
    """The copies that the mean runs over: those of the benchmark, where any are of it."""
    from stockpot.corrupt.ranges import family_of_names
    from stockpot.measure.mce import IMAGENET_C

    copies = [name for name in _whole(cell) if ":" in name]
    names = {name.rpartition(":")[0] for name in copies}
    usual = (family_of_names(names) or IMAGENET_C).corruptions
    return [name for name in copies if name.rpartition(":")[0] in usual] or copies


def _whole(cell: CellResult) -> list[str]:
    """Records about the data's own images."""
    return [name for name in cell.outcomes if name not in cell.outcome_sizes]


def _aliases(metric: str, measure: str) -> set[str]:
    """How a metric may be called: `mean_accuracy` for mean_corruption_accuracy."""
    own = "_".join(word for word in metric.split("_") if word != measure)
    short = {name.removesuffix("_accuracy") for name in (metric, own)}
    return {metric, own, *short} - {""}


def _names(cell: CellResult) -> dict[str, str]:
    """Metrics of a result by all they may be called."""
    return {
        alias: score.metric
        for score in cell.scores
        for alias in _aliases(score.metric, cell.key.measure)
    }


def _score(cell: CellResult, target: Target) -> Score:
    names = _names(cell)
    metric = names.get(target.metric)
    found = [
        score
        for score in cell.scores
        if score.metric == metric
        and all(str(score.condition.get(key)) == value for key, value in target.where.items())
    ]
    plain = [score for score in found if not _PARTS & (score.condition.keys() - target.where)]
    found = plain or found
    if len(found) == 1:
        return found[0]
    if found:
        said = "; ".join(
            ",".join(f"{k}={v}" for k, v in score.condition.items()) for score in found[:4]
        )
        raise BadParameterError(
            f"{target}: {len(found)} scores have this name; say which in brackets: {said}."
        )
    parts = {name.rpartition(":")[0] for name in _whole(cell) if ":" in name}
    known = [*dict.fromkeys(names.values()), *sorted(parts)]
    near = did_you_mean(target.metric, known)
    raise BadParameterError(
        f"{target}: no such score in {cell.key.measure} on {cell.key.data}.{near} "
        f"Known: {', '.join(known)}."
    )
