"""Rules against results whose images are all there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stockpot.errors import BadParameterError
from stockpot.gate.bounds import difference_bounds, share_bounds, unpaired_bounds
from stockpot.gate.evidence import Evidence, Values, conditions, evidence
from stockpot.gate.outcome import Outcome, status
from stockpot.gate.rule import Rule
from stockpot.results.paired.pairing import counterpart, otherwise, unlike
from stockpot.results.schema import CellResult

Cells = Sequence[CellResult]


def judge(
    rule: Rule,
    cells: Cells,
    baseline: Cells | None,
    params: Mapping[str, Any],
) -> Iterator[Outcome]:
    """One rule on every dataset that its measure was taken on.

    Args:
        rule: the requirement.
        cells: the results of the model.
        baseline: those of the baseline, where there is one.
        params: settings under which the measure must have been taken.
    """
    measure = rule.target.measure
    own = [
        cell for cell in cells if cell.key.measure == measure and rule.data in ("", cell.key.data)
    ]
    if not own:
        place = f" on {rule.data}" if rule.data else ""
        yield Outcome(rule, "not decided", rule.data, why=f"{measure}{place} was not measured")
        return
    for data in dict.fromkeys(cell.key.data for cell in own):
        there = [cell for cell in own if cell.key.data == data]
        fitting = [cell for cell in there if not _otherwise(cell, params)]
        if not fitting:
            why = f"measured under other settings ({', '.join(_otherwise(there[-1], params))})"
            yield Outcome(rule, "not decided", data, why=why)
        elif len(fitting) > 1:
            raise BadParameterError(
                f"{rule.target}: {len(fitting)} results of {measure} on {data} have different "
                "settings; say under `measure:` which are meant."
            )
        else:
            yield _judged(rule, fitting[0], baseline)


def _otherwise(cell: CellResult, params: Mapping[str, Any]) -> list[str]:
    """Settings of a result that are not those asked for."""
    return otherwise({key: cell.key.params.get(key) for key in params}, params)


def _judged(rule: Rule, cell: CellResult, baseline: Cells | None) -> Outcome:
    data = cell.key.data
    if not rule.relative:
        return absolute(rule, evidence(cell, rule.target), cell)
    if baseline is None:
        return Outcome(rule, "not decided", data, why="there is no baseline to compare with")
    others = [
        other
        for other in baseline
        if (other.key.measure, other.key.data) == (cell.key.measure, data)
    ]
    if not others:
        return Outcome(rule, "not decided", data, why="not measured in the baseline")
    alike = [other for other in others if not unlike(cell, other)]
    if not alike:
        why = f"the baseline cannot be compared: {unlike(cell, others[-1])}"
        return Outcome(rule, "not decided", data, why=why)
    other = counterpart(cell, alike)
    groups = cell.image_groups if cell.groups else other.image_groups
    if rule.kind == "each_class":
        return _each(rule, list(_classes(rule, cell, other, groups)), cell)
    if rule.kind == "each_condition":
        mine, theirs = conditions(cell), conditions(other)
        parts = [(name, mine[name], theirs[name], groups) for name in mine if name in theirs]
        return _each(rule, parts, cell)
    return relative(rule, evidence(cell, rule.target), evidence(other, rule.target), groups, cell)


def absolute(rule: Rule, found: Evidence, cell: CellResult) -> Outcome:
    """A score against a number."""
    amount = rule.amount
    score = found.score
    fraction = score is None or score.unit == "fraction"
    if fraction:
        rule.fits_shares()
    if found.images is not None:
        low, high = share_bounds(found.images, rule.alpha, cell.image_groups)
    else:
        assert score is not None
        whole = (score.value, *_interval(score.value, score.ci_low, score.ci_high))
        low, high = unpaired_bounds(whole, (0.0, 0.0, 0.0), rule.alpha)
    told = status(low, high, amount) if rule.kind == "at_least" else status(-high, -low, -amount)
    n = score.n if score is not None and found.images is None else cell.data.n
    return Outcome(rule, told, cell.key.data, found.value, None, low, high, threshold=amount,
                   n=n, of=cell.data.n, in_points=fraction)  # fmt: skip


def relative(
    rule: Rule,
    mine: Evidence,
    theirs: Evidence,
    groups: NDArray[np.int64] | None,
    cell: CellResult,
) -> Outcome:
    """A score against that of the baseline; a gain is what is better."""
    threshold = rule.amount if rule.kind == "better" else -rule.amount
    sign = 1 if mine.higher_is_better else -1
    if mine.images is not None and theirs.images is not None:
        low, high = difference_bounds(sign * (mine.images - theirs.images), rule.alpha, groups)
        fraction = True
    else:
        assert mine.score is not None
        assert theirs.score is not None
        fraction = mine.score.unit == "fraction"
        a, b = (
            (score.value, *_interval(score.value, score.ci_low, score.ci_high))
            for score in (mine.score, theirs.score)
        )
        first, second = (a, b) if sign > 0 else (b, a)
        low, high = unpaired_bounds(first, second, rule.alpha)
    if fraction:
        rule.fits_shares()
    elif rule.in_points and rule.amount:
        raise BadParameterError(
            f"{rule.target} is not a share of images: write the amount in its own unit, without "
            "`points`."
        )
    return Outcome(rule, status(low, high, threshold), cell.key.data, mine.value, theirs.value,
                   low, high, sign * (mine.value - theirs.value), threshold,
                   n=cell.data.n, of=cell.data.n, in_points=fraction)  # fmt: skip


def _interval(value: float, low: float | None, high: float | None) -> tuple[float, float]:
    return (value if low is None else low), (value if high is None else high)


Part = tuple[str, Values, Values, NDArray[np.int64] | None]
"""A class or condition: its name, answers of both, groups of its images."""


def _each(rule: Rule, parts: Sequence[Part], cell: CellResult) -> Outcome:
    """No part loses more than allowed.

    That one does is said of the worst of many, so each bound is as wide as their number asks for
    (Bonferroni); that none does must be shown for each, and there chance works against the claim.
    """
    what = "class" if rule.kind == "each_class" else "condition"
    if not parts:
        return Outcome(rule, "not decided", cell.key.data, why=_unknown(what))
    found = []
    for name, mine, theirs, groups in parts:
        delta = mine - theirs
        low, _ = difference_bounds(delta, rule.alpha, groups)
        _, high = difference_bounds(delta, rule.alpha / len(parts), groups)
        found.append((low, high, name, float(mine.mean()), float(theirs.mean()), len(delta)))
    threshold = -rule.amount
    highest = min(found, key=lambda part: part[1])
    lowest = min(found)
    if highest[1] < threshold:
        chosen, told = highest, "fails"
    else:
        chosen, told = lowest, "holds" if lowest[0] >= threshold else "not decided"
    low, high, name, mine_mean, theirs_mean, n = chosen
    return Outcome(rule, told, cell.key.data, mine_mean, theirs_mean, low, high,  # type: ignore[arg-type]
                   mine_mean - theirs_mean, threshold, n=n,
                   of=n, about=f"{what} {name}")  # fmt: skip


def _unknown(what: str) -> str:
    if what == "class":
        return "the results do not say the class of each image; measure again"
    return "there is one condition only"


def _classes(
    rule: Rule, cell: CellResult, other: CellResult, groups: NDArray[np.int64] | None
) -> Iterator[Part]:
    known = cell if cell.labels else other
    labels = known.image_labels
    mine, theirs = evidence(cell, rule.target), evidence(other, rule.target)
    if mine.images is None or theirs.images is None:
        raise BadParameterError(f"{rule.target} is not a share of images that classes could have.")
    if labels is None:
        return
    sign = 1 if mine.higher_is_better else -1
    for place, name in enumerate(known.label_names):
        rows = labels == place
        own = None if groups is None else groups[rows]
        yield name, sign * mine.images[rows], sign * theirs.images[rows], own
