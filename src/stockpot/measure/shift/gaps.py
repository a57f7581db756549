"""Scores of accuracy inside and outside: the mean outside, the gap, and what of it is expected.

Models that are better inside are better outside, roughly along a line in logit space. How far a
model lies above that line is its effective robustness (Taori et al., arXiv:2007.00644); the line
is fitted to models of the user's choice and given here by its two numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit

from stockpot.errors import BadParameterError
from stockpot.measure.measurement import proportion, with_interval
from stockpot.measure.shift.answered import Flags
from stockpot.results.schema import Score
from stockpot.results.statistics import Interval, wilson


class Line(NamedTuple):
    """Accuracy outside as a function of accuracy inside, both in logits."""

    slope: float
    intercept: float

    def expected(self, inside: float) -> float:
        """The accuracy outside that the line gives for an accuracy inside."""
        bounded = min(max(inside, 1e-4), 1 - 1e-4)
        return float(expit(self.intercept + self.slope * logit(bounded)))


def fit_line(inside: Sequence[float], outside: Sequence[float]) -> Line:
    """The least-squares line through models in logit space."""
    if len(inside) != len(outside) or len(set(inside)) < 2:
        raise BadParameterError(
            "a line needs at least two models of different accuracy inside, "
            f"got {len(inside)} inside and {len(outside)} outside."
        )
    x, y = (logit(np.clip(values, 1e-4, 1 - 1e-4)) for values in (inside, outside))
    slope, intercept = np.polyfit(x, y, 1)
    return Line(float(slope), float(intercept))


def outside_scores(
    inside: Flags, outside: Mapping[str, Flags], line: Line | None = None
) -> list[Score]:
    """Accuracy inside, in each set outside, their mean, and the gaps."""
    scores = [proportion("accuracy", inside)]
    within = float(inside.mean())
    for name, flags in outside.items():
        condition = {"set": name}
        scores.append(proportion("outside_accuracy", flags, condition))
        scores.append(
            with_interval(
                "gap",
                within - float(flags.mean()),
                min(inside.size, flags.size),
                difference(inside, flags),
                better=False,
                condition=condition,
            )
        )
    mean, interval = mean_of_sets(list(outside.values()))
    total = sum(flags.size for flags in outside.values())
    sets = {"sets": len(outside)}
    scores.append(with_interval("mean_outside_accuracy", mean, total, interval, condition=sets))
    if line is not None:
        expected = line.expected(within)
        shifted = Interval(interval.low - expected, interval.high - expected, interval.method)
        scores.append(
            with_interval(
                "effective_robustness",
                mean - expected,
                total,
                shifted,
                condition={"slope": line.slope, "intercept": line.intercept},
            )
        )
    return scores


def difference(first: Flags, second: Flags) -> Interval:
    """Newcombe's interval for the difference of two independent shares."""
    a, b = float(first.mean()), float(second.mean())
    one, two = wilson(int(first.sum()), first.size), wilson(int(second.sum()), second.size)
    low = a - b - math.hypot(a - one.low, two.high - b)
    high = a - b + math.hypot(one.high - a, b - two.low)
    return Interval(low, high, "newcombe-95")


def mean_of_sets(sets: Sequence[Flags]) -> tuple[float, Interval]:
    """The mean of several sets' accuracies, each counting equally, with its interval."""
    shares = [float(flags.mean()) for flags in sets]
    bounds = [wilson(int(flags.sum()), flags.size) for flags in sets]
    mean = sum(shares) / len(sets)
    # The sets are independent: the distances to their bounds add like errors do.
    lower = math.hypot(*(p - bound.low for p, bound in zip(shares, bounds, strict=True)))
    upper = math.hypot(*(bound.high - p for p, bound in zip(shares, bounds, strict=True)))
    return mean, Interval(mean - lower / len(sets), mean + upper / len(sets), "wilson-combined-95")
