"""Where two models differ: by class and by condition, with what counts among so many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stockpot.results.paired.answers import CORRUPTED, Both, answers, conditions, shared
from stockpot.results.paired.significance import holm, sign_test, standard_error, t_test
from stockpot.results.resamples import RESAMPLES, Groups, resampled_means
from stockpot.results.schema import CellResult, DataFacts
from stockpot.results.statistics import difference_of

By = Literal["class", "condition"]


class Change(NamedTuple):
    """The difference of two models in one class or under one condition."""

    name: str
    a: float
    b: float
    difference: float
    low: float
    high: float
    p_value: float
    p_adjusted: float
    """Among all classes, or all conditions, of this score (Holm); of a comparison, among all of its
    rows where this is one of them."""
    n: int
    rows: tuple[int, ...]
    """Images that tell them apart most, those that speak for the change first."""
    severity: float | None = None
    """Of a corruption, where they differ most."""


class Changes(NamedTuple):
    """The changes of one score of two models, largest first."""

    first: str
    second: str
    data: str
    measure: str
    metric: str
    by: By
    of: int
    """How many classes or conditions there are; all of them are corrected for."""
    changes: list[Change]
    facts: DataFacts
    """Of the images that rows are about."""
    seed: int
    """Of the measure: what random corruptions follow from."""


class _Part(NamedTuple):
    name: str
    both: Both
    groups: NDArray[np.int64] | None
    rows: NDArray[np.intp]
    severity: float | None = None


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
    parts = [
        _Part(name, both, labels, rows, _severity(first, second, name))
        for name, both in conditions(first, second).items()
    ]
    listed.append(("condition", parts))
    return [
        Changes(first.key.model, second.key.model, first.key.data, first.key.measure,
                metric, by, len(parts), _largest(_judged(parts, seed), top), first.data,
                first.key.seed)
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


def _severity(first: CellResult, second: CellResult, name: str) -> float | None:
    """Where two models differ most under a corruption; none where it has no severities."""
    if first.key.measure != "corruption":
        return None
    places = [place for place in shared(first, second) if place.rpartition(":")[0] == name]
    gaps = [abs(float(first.outcome(p).mean() - second.outcome(p).mean())) for p in places]
    return float(places[int(np.argmax(gaps))].rpartition(":")[2])


def _judged(parts: Sequence[_Part], seed: int) -> list[Change]:
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
        Change(part.name, float(part.both.a.mean()), float(part.both.b.mean()), told.difference,
               told.low, told.high, p, adjusted, len(part.rows), _telling(part, told.difference),
               part.severity)
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
