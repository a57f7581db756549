"""What is best beyond noise: better than every other by more than chance explains.

Two models that answered the same images are compared image by image (a paired bootstrap, by groups
where images belong together); otherwise the two intervals decide, whose half-widths add in squares.
The first is best when it is better than each of the others at 95 %. That needs no correction for
their number: the more rivals are as good, the nearer the second lies (Gutmann and Maymin, Annals of
Statistics 15, 1987).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stockpot.results.groups import shares_right
from stockpot.results.resamples import group_sums
from stockpot.results.schema import CellResult, Score
from stockpot.results.statistics import paired_bootstrap, wilson
from stockpot.results.trust import is_ranked

Answers = NDArray[np.float64]
_FEWEST = 6


class Entrant(NamedTuple):
    """A score in the running, and, where it is the mean of answers to images, these."""

    score: Score
    answers: Answers | None = None
    fingerprint: str = ""
    """Of the images; answers to others cannot be paired."""
    groups: NDArray[np.int64] | None = None


def best_beyond_noise(entrants: Mapping[str, Entrant]) -> str | None:
    """The one that is better than every other beyond noise; none where there is none."""
    if len(entrants) < 2:
        return None
    first = next(iter(entrants.values())).score
    if first.higher_is_better is None:
        return None
    sign = 1.0 if first.higher_is_better else -1.0
    ranked = sorted(entrants, key=lambda name: -sign * entrants[name].score.value)
    leader, *others = ranked
    # The nearest rivals are the likeliest to spoil it, and come first.
    if all(beyond_noise(entrants[leader], entrants[other]) for other in others):
        return leader
    return None


def beyond_noise(first: Entrant, second: Entrant) -> bool:
    """Whether the first is better than the second by more than noise."""
    a, b = first.score, second.score
    sign = -1.0 if a.higher_is_better is False else 1.0
    difference = sign * (a.value - b.value)
    if difference <= 0:
        return False
    known = first.answers is not None and second.answers is not None
    if known and first.fingerprint == second.fingerprint:
        one, two = first.answers, second.answers
        if one is not None and two is not None and one.shape == two.shape:
            groups = first.groups if first.groups is not None else second.groups
            return _paired(sign * (one - two), groups)
    down, up = abs(a.value - _end(a, -sign)), abs(_end(b, sign) - b.value)
    return difference > math.hypot(down, up)


def _paired(delta: Answers, groups: NDArray[np.int64] | None) -> bool:
    """Whether differences of single images lie above zero; drawn anew only where that is close."""
    parts = delta if groups is None else group_sums(delta[:, None], groups)[:, 0]
    # Five images that all speak for one side do so by chance in 6 of 100 cases, two-sided.
    if np.count_nonzero(parts) < _FEWEST:
        return False
    error = float(parts.std(ddof=1)) / math.sqrt(len(parts))
    ratio = float(parts.mean()) / error if error else math.inf
    if len(parts) >= 100 and not 1 < ratio < 5:
        return ratio >= 5
    return paired_bootstrap(delta, np.zeros_like(delta), groups=groups).low > 0


def entrant(cell: CellResult, score: Score) -> Entrant:
    """A score of a cell, with the answers that it is the mean of where the cell keeps them."""
    answers = answers_of(cell, score)
    return Entrant(score, answers, cell.data.fingerprint, cell.image_groups)


def answers_of(cell: CellResult, score: Score) -> Answers | None:
    """For each image how right the model was, if the score is the mean of that."""
    if score.metric == "mean_corruption_accuracy":
        shares = shares_right(cell)
        return None if shares is None else shares.astype(np.float64)
    name = _record(score)
    if name not in cell.outcomes:
        return None
    answers = cell.outcome(name).astype(np.float64)
    # A record of other images than the score stands on (those unseen, those of a set) says nothing.
    same = len(answers) == score.n and abs(float(answers.mean()) - score.value) < 1e-6
    return answers if same else None


def best_of(cells: Sequence[CellResult], scores: Mapping[str, Score]) -> str | None:
    """Among scores by model, all of one column of these cells, the best beyond noise."""
    found: dict[str, Entrant] = {}
    for model, score in scores.items():
        of = next((c for c in cells if c.key.model == model and score in c.scores), None)
        if of is None or is_ranked(of):
            found[model] = Entrant(score) if of is None else entrant(of, score)
    return best_beyond_noise(found)


def _record(score: Score) -> str:
    condition = score.condition
    match score.metric:
        case "accuracy":
            return "correct"
        case "union_accuracy":
            return "union"
        case "audited_accuracy":
            return "audited"
        case "robust_accuracy":
            return f"robust:{condition.get('norm')}:{condition.get('eps')}"
        case "outside_accuracy":
            return f"outside:{condition.get('set')}"
    return score.metric


def _end(score: Score, side: float) -> float:
    """An end of the interval. A share without one has that of its count; what is left is exact,
    such as a number of parameters."""
    end = score.ci_high if side > 0 else score.ci_low
    if end is None and score.unit == "fraction" and score.n > 1 and 0 <= score.value <= 1:
        interval = wilson(round(score.value * score.n), score.n)
        end = interval.high if side > 0 else interval.low
    return score.value if end is None else end
