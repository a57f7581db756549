"""Where two models differ: by class and by condition, with what counts among so many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stockpot.results.paired.answers import CORRUPTED, Both, answers, conditions
from stockpot.results.paired.significance import holm, sign_test, standard_error, t_test
from stockpot.results.schema import CellResult
from stockpot.results.statistics import RESAMPLES, Groups, difference_of, resampled_means

By = Literal["class", "condition"]


class Change(NamedTuple):
    """The difference of two models in one class or under one condition."""

    by: By
    name: str
    a: float
    b: float
    difference: float
    low: float
    high: float
    p_value: float
    p_adjusted: float
    """Among all classes, or all conditions, of this score (Holm)."""
    n: int
    rows: tuple[int, ...]
    """Images that tell them apart most, those that speak for the change first."""


class Changes(NamedTuple):
    """The changes of one score of two models, largest first."""

    first: str
    second: str
    data: str
    measure: str
    metric: str
    of: int
    """How many classes or conditions there are; all of them are corrected for."""
    changes: list[Change]


class _Part(NamedTuple):
    name: str
    both: Both
    groups: NDArray[np.int64] | None
    rows: NDArray[np.intp]


def changes(
    first: CellResult, second: CellResult, groups: Groups | None, *, top: int = 5, seed: int = 0
) -> list[Changes]:
    """By class for its main score, and by condition; the `top` changes for the better and as many
    for the worse."""
    labels = None if groups is None else np.asarray(groups)
    found = answers(first, second)
    metric = next((name for name in (CORRUPTED, "union", "accuracy") if name in found), "")
    listed: list[tuple[By, list[_Part]]] = []
    if metric and len(found[metric].a) == first.data.n:
        listed.append(("class", list(_classes(first, second, found[metric], labels))))
    rows = np.arange(first.data.n)
    parts = [_Part(name, both, labels, rows) for name, both in conditions(first, second).items()]
    listed.append(("condition", parts))
    return [
        Changes(first.key.model, second.key.model, first.key.data, first.key.measure,
                metric if by == "class" else "by condition", len(parts),
                _largest(_judged(by, parts, seed), top))
        for by, parts in listed
        if parts
    ]  # fmt: skip


def _classes(
    first: CellResult, second: CellResult, both: Both, groups: NDArray[np.int64] | None
) -> Iterable[_Part]:
    known = first if first.labels else second
    labels = known.image_labels
    if labels is None:
        return
    for place, name in enumerate(known.label_names):
        rows = np.flatnonzero(labels == place)
        if len(rows):
            own = None if groups is None else groups[rows]
            yield _Part(name, Both(both.a[rows], both.b[rows]), own, rows)


def _judged(by: By, parts: Sequence[_Part], seed: int) -> list[Change]:
    found = []
    for part in parts:
        delta = part.both.a - part.both.b
        draws = resampled_means(delta[:, None], seed=seed, resamples=RESAMPLES, groups=part.groups)
        clusters = len(delta) if part.groups is None else len(np.unique(part.groups))
        told = difference_of(delta, draws[:, 0], clusters)
        exact = sign_test(delta) if part.groups is None else None
        error = standard_error([draws[:, 0]], [clusters])
        found.append((part, told, t_test(told.difference, error, clusters)
                      if exact is None else exact))  # fmt: skip
    return [
        Change(by, part.name, float(part.both.a.mean()), float(part.both.b.mean()), told.difference,
               told.low, told.high, p, adjusted, len(part.rows), _telling(part, told.difference))
        for (part, told, p), adjusted in zip(found, holm([p for _, _, p in found]), strict=True)
    ]  # fmt: skip


def _telling(part: _Part, difference: float, most: int = 6) -> tuple[int, ...]:
    """Images on which the two differ in the direction of the change, the clearest first."""
    speaks = (part.both.a - part.both.b) * (1 if difference >= 0 else -1)
    order = np.argsort(-speaks, kind="stable")[:most]
    return tuple(int(part.rows[place]) for place in order if speaks[place] > 0)


def _largest(found: Sequence[Change], top: int) -> list[Change]:
    ordered = sorted(found, key=lambda change: change.difference)
    kept = [*ordered[:top], *ordered[max(top, len(ordered) - top) :]]
    kept = [change for change in kept if change.difference]
    return sorted(kept, key=lambda change: -abs(change.difference))
