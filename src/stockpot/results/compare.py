"""`stockpot.compare`: two models, or two versions of one, on the same images, with verdicts.

Cells are paired by measure and dataset and must stand on the same images under the same settings
and convention (`paired/pairing.py`). What happened to each image is compared, so the interval is
that of the difference and not of two scores. Images that belong together, as the results tell or as
is said here, are drawn as whole groups. Verdicts hold for all rows together
(`paired/significance.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stockpot.errors import BadParameterError, UserError
from stockpot.results.contrast import Verdict
from stockpot.results.paired.answers import (
    SEARCHED,
    Answers,
    Both,
    answers,
    condition_of,
    judged,
)
from stockpot.results.paired.changes import Changes, changes
from stockpot.results.paired.pairing import Results, by_model, matched, pairs
from stockpot.results.paired.significance import holm, sign_test, standard_error, t_test
from stockpot.results.resamples import RESAMPLES, Groups, resampled_means
from stockpot.results.schema import CellResult
from stockpot.results.several_sets import likeness
from stockpot.results.statistics import difference_of

Place = tuple[str, str, str]
"""Dataset, measure, metric."""
_CHANCE = 2.6
"""Correlations of independent answers, times the root of their number, are larger once in 200."""


class Compared(NamedTuple):
    """One score of two models on the same images."""

    first: str
    second: str
    data: str
    measure: str
    metric: str
    a: float
    b: float
    difference: float
    low: float
    high: float
    p_value: float
    """Two-sided, of the difference being the margin."""
    n: int
    """Images."""
    clusters: int
    """What was drawn anew: images, or the groups they belong to."""
    margin: float
    verdict: Verdict
    """About the claim that the first is better than the second by more than the margin; of all rows
    together, whatever their number."""
    p_adjusted: float
    """The p value among all rows (Holm)."""


class Comparison(NamedTuple):
    """Everything that could be compared, and what could not."""

    rows: list[Compared]
    left_out: list[str]
    changes: list[Changes]
    """By class and by condition, the largest of each score."""
    confidence: float = 0.95


def compare(
    results_a: Results,
    results_b: Results,
    *,
    model: str = "",
    against: str = "",
    margin: float = 0.0,
    groups: Mapping[str, Groups] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    top: int = 5,
) -> Comparison:
    """Is the first better than the second? Paired by image, clustered, with a verdict.

    Models of the same name are compared with each other; where each side has one model, those two.

    Args:
        results_a: a run folder (one model of it as `FOLDER:MODEL`), a result file, or results.
        results_b: the same of what it is compared with.
        model: the one model of the first side that is meant.
        against: the one model of the second side that it is compared with.
        margin: how much better it should be, as a share; a negative one asks for no worse.
        groups: by dataset, a label for each image; equal ones are drawn together, such as the
            pictures of one object. Without, images are grouped as the results tell.
        confidence: of the intervals, each for itself, and of the verdicts, all together.
        seed: of the bootstrap.
        top: how many changes for the better and for the worse to list, by class and by condition.
    """
    if not 0 < confidence < 1:
        raise BadParameterError(f"confidence: expected more than 0 and less than 1, {confidence}.")
    if not -1 < margin < 1:
        raise BadParameterError(f"margin: expected a share such as 0.01, got {margin}.")
    sides = by_model(results_a, model, "model"), by_model(results_b, against, "against")
    rows: list[Compared] = []
    left_out: list[str] = []
    changed: list[Changes] = []
    for first, second in pairs(*sides):
        found: dict[Place, _Delta] = {}
        alike = matched(sides[0][first], sides[1][second])
        left_out += alike.left_out
        for cell, other in alike.cells:
            labels = _labels(groups, cell, other)
            for place, delta in _deltas(cell, other, labels, seed).items():
                found.setdefault(place, delta)
            if top:
                changed += changes(cell, other, labels, top=top, seed=seed)
        rows += _rows(first, second, found, margin, confidence)
    if not rows:
        why = f" {left_out[0]}." if left_out else ""
        raise UserError(
            f"nothing to compare: no cell of both stands on the same images.{why}",
            hint="Measure both with the same data, measures and settings.",
        )
    told = _together(rows, confidence)
    return Comparison(told, left_out, [_as_told(part, told) for part in changed], confidence)


def _together(rows: Sequence[Compared], confidence: float) -> list[Compared]:
    """The rows with verdicts that hold for all of them."""
    found = []
    for row, p in zip(rows, holm([row.p_value for row in rows]), strict=True):
        word: Verdict = "held" if row.difference > row.margin else "did not hold"
        told = word if p <= 1 - confidence else "not told apart"
        found.append(row._replace(p_adjusted=p, verdict=told))
    return found


def _as_told(part: Changes, rows: Sequence[Compared]) -> Changes:
    """The changes, of which those that are rows too count as they do there: one difference has one
    verdict. A row with a margin asks another question."""
    where = part.first, part.second, part.data, part.measure
    known = {
        condition_of(row.metric): row.p_adjusted
        for row in rows
        if part.by == "condition" and not row.margin and row[:4] == where
    }
    as_there = [
        change._replace(p_adjusted=known.get(change.name, change.p_adjusted))
        for change in part.changes
    ]
    return part._replace(changes=as_there)


class _Delta:
    """Answers of both on the same images, and the resampled means of their difference.

    Equal numbers of rows are drawn alike. So all rows of a dataset are drawn, whichever of them
    were judged: sets that show the same images stay together where other ones were judged in each.
    """

    def __init__(
        self,
        both: Both,
        groups: Groups | None,
        seed: int,
        fingerprint: str = "",
        rows: NDArray[np.bool_] | None = None,
    ) -> None:
        """Draw the images anew.

        Args:
            both: how right both are, about the images that were judged.
            groups: a label for each row; equal ones are drawn together.
            seed: of the draws.
            fingerprint: of the images.
            rows: which rows were judged; all of them by default.
        """
        self.a, self.b = both
        self.fingerprint = fingerprint
        self.rows = np.ones(len(self.a), bool) if rows is None else rows
        labels = np.arange(len(self.rows)) if groups is None else np.asarray(groups)
        self.clusters = len(np.unique(labels[self.rows]))
        self.drawn = len(np.unique(labels))
        delta = self.a - self.b
        self.draws = _drawn(self.over_rows(delta), seed, groups)
        if not self.rows.all():
            judged = _drawn(self.rows.astype(np.float64), seed, groups)
            # A resample without a judged image says nothing of them.
            rest = np.full(RESAMPLES, delta.mean())
            self.draws = np.divide(self.draws, judged, out=rest, where=judged > 0)
        self.exact = sign_test(delta) if groups is None else None

    def over_rows(self, values: Answers) -> Answers:
        """Values of the judged images in their places, and nothing in the others."""
        whole = np.zeros(len(self.rows))
        whole[self.rows] = values
        return whole

    def shows_images_of(self, other: _Delta) -> bool:
        """Whether two sets show the same images: as is known, or as their answers tell.

        Answers to different images agree by row by chance alone, hardly ever by so much.
        """
        if self.drawn != other.drawn or len(self.rows) != len(other.rows):
            return False
        if self.fingerprint and self.fingerprint == other.fingerprint:
            return True
        judged = self.rows & other.rows
        pairs = [
            (mine.over_rows(mine.a)[judged], mine.over_rows(mine.b)[judged])
            for mine in (self, other)
        ]
        chance = _CHANCE / max(np.sqrt(judged.sum()), 1.0)
        return any(likeness(one, two) > chance for one, two in zip(*pairs, strict=True))


def _drawn(values: Answers, seed: int, groups: Groups | None) -> Answers:
    found = resampled_means(values[:, None], seed=seed, resamples=RESAMPLES, groups=groups)
    return found[:, 0]


def _deltas(
    cell: CellResult, other: CellResult, groups: Groups | None, seed: int
) -> dict[Place, _Delta]:
    """By dataset, measure and metric. Accuracy on the images as they are counts as `clean`
    whichever measure knows it: once is enough."""
    found = {}
    for metric, (a, b) in answers(cell, other).items():
        labels = groups
        rows = judged(cell, other) if metric == SEARCHED else None
        if labels is not None and np.size(labels) != (len(a) if rows is None else len(rows)):
            labels = None  # a record about other images than the data's own
        if len(a):
            measure = "clean" if metric == "accuracy" else cell.key.measure
            found[cell.key.data, measure, metric] = _Delta(
                Both(a, b), labels, seed, cell.data.fingerprint, rows
            )
    return found


def _rows(
    first: str, second: str, found: Mapping[Place, _Delta], margin: float, confidence: float
) -> list[Compared]:
    """Each dataset, and the mean over several of one measure."""
    parts = {place: [delta] for place, delta in found.items()}
    for measure, metric in dict.fromkeys(place[1:] for place in found):
        same = [delta for place, delta in found.items() if place[1:] == (measure, metric)]
        if len(same) > 1:
            parts[f"mean of {len(same)}", measure, metric] = same
    return [
        _row(first, second, place, deltas, margin, confidence) for place, deltas in parts.items()
    ]


def _row(
    first: str,
    second: str,
    place: Place,
    parts: Sequence[_Delta],
    margin: float,
    confidence: float,
) -> Compared:
    """One dataset, or the plain mean of several; equal seeds draw images of equal sets together."""
    a, b = (float(np.mean([side.mean() for side in sides]))
            for sides in ([p.a for p in parts], [p.b for p in parts]))  # fmt: skip
    draws = np.mean([part.draws for part in parts], axis=0)
    shares = _shares(parts)
    clusters = sum(share * part.clusters for share, part in zip(shares, parts, strict=True))
    found = difference_of(np.array([a - b]), draws, round(clusters), confidence)
    p = parts[0].exact if len(parts) == 1 and not margin else None
    if p is None:
        error = standard_error(
            [part.draws for part in parts], [part.clusters for part in parts], shares
        )
        p = t_test(a - b - margin, error, round(clusters - sum(shares)) + 1)
    return Compared(
        first, second, *place, a, b, found.difference, found.low, found.high, p,
        sum(len(part.a) for part in parts), found.clusters, margin, "not told apart", p,
    )  # fmt: skip


def _shares(parts: Sequence[_Delta]) -> list[float]:
    """By how much each set counts as images of its own: of k that show the same, 1 / k each."""
    return [1 / sum(one is two or one.shows_images_of(two) for two in parts) for one in parts]


def _labels(
    groups: Mapping[str, Groups] | None, cell: CellResult, other: CellResult
) -> Groups | None:
    """Those that were given, else those of the results; one of two may be from before there were
    any in them."""
    labels = (groups or {}).get(cell.key.data)
    if labels is None:
        return cell.image_groups if cell.groups else other.image_groups
    if np.size(labels) != cell.data.n:
        raise BadParameterError(
            f"groups of {cell.key.data}: expected a label for each of its {cell.data.n} images, "
            f"got {np.size(labels)}."
        )
    return labels
