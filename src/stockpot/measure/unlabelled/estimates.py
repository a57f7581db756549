"""The accuracy that a model's answers foretell, each estimate with its interval.

Intervals resample the images of source and target. They say how far chance may move an estimate,
and not how far a shift misleads the method.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from stockpot.measure.unknown.answers import Answers
from stockpot.measure.unknown.temperature import fitted_temperature
from stockpot.results.resamples import image_counts
from stockpot.results.statistics import Interval
from stockpot.score.without_labels.confidence import (
    atc_accuracy,
    doc_accuracy,
    entropy,
    nuclear_norm,
)
from stockpot.score.without_labels.transport import transport

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Rows = NDArray[np.int64]
METHODS = ("atc_confidence", "atc_entropy", "doc", "cot", "nuclear_norm")
ACCURACIES = METHODS[:-1]
"""Those that estimate an accuracy; the nuclear norm orders models alone."""
RESAMPLES = 400
_NORMS = 50
"""Resamples of the nuclear norm, whose spread alone is used: each takes the singular values."""
_AT_ONCE = 1_000_000
"""Images of resamples that are held at a time."""
_METHOD = "bootstrap-95:source-and-target"


class Estimate(NamedTuple):
    """A foretold accuracy, or a score."""

    value: float
    interval: Interval


class Sureness(NamedTuple):
    """What thresholds are laid on; where a model gave no answer it is as unsure as can be."""

    best: Floats
    spread: Floats
    """Minus the entropy."""

    @classmethod
    def of(cls, odds: Floats, answered: Flags) -> Sureness:
        """That of probabilities."""
        spread = -entropy(torch.from_numpy(odds)).numpy()
        return cls(odds.max(axis=1), np.where(answered, spread, -np.inf))

    def drawn(self, rows: Rows) -> Sureness:
        """That of some images."""
        return Sureness(self.best[rows], self.spread[rows])


def estimates(
    source: Answers, target: Answers, *, scaled: bool = True, seed: int = 0
) -> dict[str, Estimate]:
    """All estimates of `METHODS` for one model.

    Args:
        source: answers to labelled images.
        target: answers to the images in question; their labels are not looked at.
        scaled: divide logits by the temperature that fits the source.
        seed: of the resamples.
    """
    heat = fitted_temperature(source) if scaled else 1.0
    here, odds = (np.nan_to_num(each.probabilities(heat), nan=0.0) for each in (source, target))
    known, there = Sureness.of(here, source.answered), Sureness.of(odds, target.answered)
    moved = transport(source.wanted[:, 0], odds, seed)
    values = _accuracies(known, source.correct, there)
    found = {name: float(value) for name, value in values.items()} | {"cot": moved.accuracy}
    drawn: dict[str, list[Floats]] = {name: [] for name in ACCURACIES}
    for left, right in _draws(source, target, seed):
        each = _accuracies(known.drawn(left), source.correct[left], there.drawn(right))
        each["cot"] = moved.of_source[left].mean(axis=-1) + moved.of_target[right].mean(axis=-1)
        for name, value in each.items():
            drawn[name].append(np.atleast_1d(value))
    told = {name: Estimate(found[name], _ends(drawn[name])) for name in ACCURACIES}
    return told | {"nuclear_norm": _norm(odds, target, seed + 1)}


def _accuracies(source: Sureness, correct: Flags, target: Sureness) -> dict[str, Floats]:
    """Of one set of images, or of as many resamples as there are rows."""
    right = torch.from_numpy(correct)
    best = torch.from_numpy(source.best), right, torch.from_numpy(target.best)
    spread = torch.from_numpy(source.spread), right, torch.from_numpy(target.spread)
    return {
        "atc_confidence": atc_accuracy(*best).numpy(),
        "atc_entropy": atc_accuracy(*spread).numpy(),
        "doc": doc_accuracy(*best).numpy(),
    }


def _draws(source: Answers, target: Answers, seed: int) -> Iterator[tuple[Rows, Rows]]:
    """Rows of resamples of both: many at once, or one by one where whole groups are drawn."""
    both = []
    for place, answers in enumerate((source, target)):
        rows, n = np.arange(len(answers)), len(answers)
        counts = image_counts(n, seed=seed + place, resamples=RESAMPLES, groups=answers.groups)
        both.append([np.repeat(rows, each) for part in counts for each in part])
    if source.groups is not None or target.groups is not None:
        yield from zip(*both, strict=True)
        return
    step = max(1, _AT_ONCE // max(len(source), len(target), 1))
    for start in range(0, RESAMPLES, step):
        left, right = (np.stack(rows[start : start + step]) for rows in both)
        yield left, right


def _norm(probabilities: Floats, answers: Answers, seed: int) -> Estimate:
    table = torch.from_numpy(probabilities)
    value = float(nuclear_norm(table))
    counts = image_counts(len(table), seed=seed, resamples=_NORMS, groups=answers.groups)
    rows = np.arange(len(table))
    drawn = [float(nuclear_norm(table[np.repeat(rows, c)])) for part in counts for c in part]
    # A resample repeats images and so is less varied: its spread is of use, its middle is not.
    half = 1.959964 * float(np.std(drawn))
    ends = Interval(max(0.0, value - half), min(1.0, value + half), "bootstrap-sd-95:target")
    return Estimate(value, ends)


def _ends(drawn: list[Floats]) -> Interval:
    low, high = np.percentile(np.concatenate(drawn), [2.5, 97.5])
    return Interval(float(low), float(high), _METHOD)
