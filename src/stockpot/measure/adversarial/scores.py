"""From who withstood what to scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stockpot.attack.threat import Threat, Threats
from stockpot.measure.measurement import Flags, Measurement, proportion
from stockpot.results.resamples import Groups


def record_of(member: Threat) -> str:
    """How the outcome under a threat is called in results."""
    return f"robust:{member.norm}:{member.eps}"


def measured(
    correct: Flags, robust: Mapping[Threat, Flags], groups: Groups | None = None, **facts: Any
) -> Measurement:
    """Clean accuracy, the accuracy under each threat, and under all of them where there are many.

    Args:
        correct: who is right as it is.
        robust: for each threat who also withstood it.
        groups: which images belong together.
        facts: what else there is to say in a `Measurement`.
    """
    union: Flags = np.logical_and.reduce(list(robust.values()))
    scores = [proportion("accuracy", correct, groups=groups)]
    for member, flags in robust.items():
        condition = {"norm": member.norm, "eps": member.eps}
        scores.append(proportion("robust_accuracy", flags, condition, groups=groups))
    if len(robust) > 1:
        condition = {"threats": str(Threats(tuple(robust)))}
        scores.append(proportion("union_accuracy", union, condition, groups=groups))
    outcomes = {"correct": correct, "union": union}
    outcomes |= {record_of(member): mask for member, mask in robust.items()}
    return Measurement(scores=scores, outcomes=outcomes, **facts)
