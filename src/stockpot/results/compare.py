"""`stockpot.compare`: two models, or two versions of one, on the same images, with verdicts.

Cells are paired by measure and dataset and must stand on the same images under the same settings.
What happened to each image is compared, so the interval is that of the difference and not of two
scores. An image that stands in a cell several times (once per corruption and severity) counts once,
with the share of its copies that are right; images that belong together, as the results tell or as
is said here, are drawn as whole groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stockpot.errors import BadParameterError, UnknownNameError, UserError
from stockpot.results.contrast import Verdict, verdict
from stockpot.results.resamples import RESAMPLES, Groups, resampled_means
from stockpot.results.schema import CellResult
from stockpot.results.statistics import difference_of
from stockpot.results.store import load_results

Results = str | Path | CellResult | Sequence[CellResult]
Answers = NDArray[np.float64]
_ASIDE = ("covered", "known", "validated", "reconstructed", "perturbed", "moved")
"""Records of what was asked, not of who was right."""


_SEARCHED = "perturbed accuracy"
Place = tuple[str, str, str]
"""Dataset, measure, metric."""


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
    n: int
    """Images."""
    clusters: int
    """What was drawn anew: images, or the groups they belong to."""
    margin: float
    verdict: Verdict
    """About the claim that the first is better than the second by more than the margin."""


class Comparison(NamedTuple):
    """Everything that could be compared, and what could not."""

    rows: list[Compared]
    left_out: list[str]


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
) -> Comparison:
    """Is the first better than the second? Paired by image, clustered, with a verdict.

    Models of the same name are compared with each other; where each side has one model, those two.

    Args:
        results_a: a run folder, a result file, or results.
        results_b: the same of what it is compared with.
        model: the one model of the first side that is meant.
        against: the one model of the second side that it is compared with.
        margin: how much better it should be, as a share; a negative one asks for no worse.
        groups: by dataset, a label for each image; equal ones are drawn together, such as the
            pictures of one object. Without, images are grouped as the results tell.
        confidence: of the intervals.
        seed: of the bootstrap.
    """
    if not 0 < confidence < 1:
        raise BadParameterError(f"confidence: expected more than 0 and less than 1, {confidence}.")
    if not -1 < margin < 1:
        raise BadParameterError(f"margin: expected a share such as 0.01, got {margin}.")
    sides = _by_model(results_a, model, "model"), _by_model(results_b, against, "against")
    pairs = _pairs(*sides)
    rows: list[Compared] = []
    left_out: list[str] = []
    for first, second in pairs:
        found: dict[Place, _Delta] = {}
        for key, cell in sides[0][first].items():
            other = sides[1][second].get(key)
            why = "not measured there" if other is None else _unlike(cell, other)
            if other is None or why:
                left_out.append(f"{first}, {cell.key.measure} on {cell.key.data}: {why}")
            else:
                labels = _labels(groups, cell, other)
                for place, delta in _deltas(cell, other, labels, seed).items():
                    found.setdefault(place, delta)
        rows += _rows(first, second, found, margin, confidence)
    if not rows:
        why = f" {left_out[0]}." if left_out else ""
        raise UserError(
            f"nothing to compare: no cell of both stands on the same images.{why}",
            hint="Measure both with the same data, measures and settings.",
        )
    return Comparison(rows, left_out)


class _Delta:
    """Answers of both on the same images, and the resampled means of their difference."""

    def __init__(self, a: Answers, b: Answers, groups: Groups | None, seed: int) -> None:
        self.a, self.b = a, b
        self.clusters = len(a) if groups is None else len(np.unique(np.asarray(groups)))
        delta = (a - b)[:, None]
        self.draws = resampled_means(delta, seed=seed, resamples=RESAMPLES, groups=groups)[:, 0]


def _deltas(
    cell: CellResult, other: CellResult, groups: Groups | None, seed: int
) -> dict[Place, _Delta]:
    """By dataset, measure and metric. Accuracy on the images as they are counts as `clean`
    whichever measure knows it: once is enough."""
    found = {}
    for metric, (a, b) in _answers(cell, other).items():
        labels = groups
        if groups is not None and metric == _SEARCHED:
            labels = np.asarray(groups)[_judged(cell, other)]
        if len(a):
            measure = "clean" if metric == "accuracy" else cell.key.measure
            found[cell.key.data, measure, metric] = _Delta(a, b, labels, seed)
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
    found = difference_of(np.array([a - b]), draws, sum(p.clusters for p in parts), confidence)
    return Compared(
        first, second, *place, a, b, found.difference, found.low, found.high, found.p_value,
        sum(len(part.a) for part in parts), found.clusters, margin,
        verdict(found.low, found.high, margin),
    )  # fmt: skip


def _by_model(
    given: Results, chosen: str, option: str
) -> dict[str, dict[tuple[str, str], CellResult]]:
    cells = load_results(given) if isinstance(given, str | Path) else given
    cells = [cells] if isinstance(cells, CellResult) else cells
    found: dict[str, dict[tuple[str, str], CellResult]] = {}
    for cell in cells:
        found.setdefault(cell.key.model, {})[cell.key.measure, cell.key.data] = cell
    if chosen and chosen not in found:
        raise UnknownNameError(f"model ({option})", chosen, found)
    return {chosen: found[chosen]} if chosen else found


def _pairs(first: Mapping[str, object], second: Mapping[str, object]) -> list[tuple[str, str]]:
    if len(first) == len(second) == 1:
        return [(next(iter(first)), next(iter(second)))]
    if pairs := [(name, name) for name in first if name in second]:
        return pairs
    raise UserError(
        f"the two sides have no model in common: {', '.join(first)} and {', '.join(second)}.",
        hint="Choose one of each: --model NAME --against NAME.",
    )


def _unlike(first: CellResult, second: CellResult) -> str:
    """Why two cells cannot be paired; empty when they can."""
    if first.data.fingerprint != second.data.fingerprint or first.data.n != second.data.n:
        return f"other images ({first.data.n} and {second.data.n})"
    if first.key.params != second.key.params:
        keys = {*first.key.params, *second.key.params}
        other = [k for k in keys if first.key.params.get(k) != second.key.params.get(k)]
        return f"other settings ({', '.join(sorted(other))})"
    return "" if _shared(first, second) else "no record of single images"


def _shared(first: CellResult, second: CellResult) -> list[str]:
    return [name for name in first.outcomes if name in second.outcomes and name not in _ASIDE]


def _answers(first: CellResult, second: CellResult) -> dict[str, tuple[Answers, Answers]]:
    """By metric, how right both are about each image."""
    found: dict[str, tuple[Answers, Answers]] = {}
    copies = []
    for name in _shared(first, second):
        a, b = (cell.outcome(name).astype(np.float64) for cell in (first, second))
        if name == "withstood":
            kept = _judged(first, second)
            found[_SEARCHED] = (a[kept], b[kept])
        elif first.key.measure == "corruption" and ":" in name:
            copies.append((a, b))
        else:
            found["accuracy" if name == "correct" else name] = (a, b)
    if copies:
        a, b = np.mean(copies, axis=0)
        found["corruption accuracy"] = (a, b)
    return found


def _judged(first: CellResult, second: CellResult) -> NDArray[np.bool_]:
    """Images that were accepted as their class in both searches."""
    return first.outcome("validated") & second.outcome("validated")


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
