"""Agreement on the line: accuracy on the target from how models agree there (arXiv:2206.13089).

Where the accuracies of models on source and target lie on a line of probits, the agreements of
their pairs lie on the same line, and agreement needs no labels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stockpot.errors import BadDataError

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
_EDGE = 1e-4
"""Shares are kept this far from 0 and 1, where a probit has no end."""


class AgreementLine(NamedTuple):
    """What the agreement of pairs says of every model."""

    simple: Floats
    """ALine-S: the accuracy on the source, carried along the line."""
    paired: Floats
    """ALine-D: the accuracies that fit the agreement of every pair."""
    slope: float
    intercept: float
    fit: float
    """R² of the line through the pairs; the authors trust estimates above 0.95."""


def pairs_of(models: int) -> tuple[Numbers, Numbers]:
    """The first and the second model of every pair."""
    first, second = np.triu_indices(models, 1)
    return first, second


def agreements(answers: Numbers) -> NDArray[np.bool_]:
    """Whether each pair of models answers alike: images x pairs; no answer is like none.

    Args:
        answers: the class that each model says, below zero for none; models x images.
    """
    first, second = pairs_of(len(answers))
    alike: NDArray[np.bool_] = (answers[first] == answers[second]) & (answers[first] >= 0)
    return alike.T


def agreement_line(right: Floats, source: Floats, target: Floats) -> AgreementLine:
    """Estimate accuracies on the target.

    Args:
        right: the accuracy of every model on the source.
        source: the agreement of every pair (in the order of `pairs_of`) there.
        target: the agreement of every pair on the target.
    """
    models = len(right)
    if models < 3:
        raise BadDataError(f"agreement on the line needs three models or more, got {models}.")
    from scipy.special import ndtr

    inside, x, y = _probit(right), _probit(source), _probit(target)
    slope, intercept = _line(x, y)
    left = y - (slope * x + intercept)
    spread = float(((y - y.mean()) ** 2).sum())
    first, second = pairs_of(models)
    table = np.zeros((len(x), models))
    rows = np.arange(len(x))
    table[rows, first] = table[rows, second] = 0.5
    mean = (inside[first] + inside[second]) / 2
    solved = np.linalg.lstsq(table, y + slope * (mean - x), rcond=None)[0]
    return AgreementLine(
        ndtr(slope * inside + intercept),
        ndtr(solved),
        slope,
        intercept,
        1 - float((left**2).sum()) / spread if spread else 0.0,
    )


def _line(x: Floats, y: Floats) -> tuple[float, float]:
    if np.ptp(x) == 0:  # equally alike pairs show where the line is, and not its slope
        return 1.0, float((y - x).mean())
    slope, intercept = np.polyfit(x, y, 1)
    return float(slope), float(intercept)


def _probit(shares: Floats) -> Floats:
    from scipy.special import ndtri

    found: Floats = ndtri(np.clip(shares, _EDGE, 1 - _EDGE))
    return found
