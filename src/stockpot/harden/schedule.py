"""Learning rates over a run, as a factor on the peak for each step."""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["cosine", "one_cycle", "constant"]


def factor(schedule: Schedule, step: int, total: int, warmup: int) -> float:
    """The share of the peak learning rate at a step (0 is the first).

    `cosine` and `constant` rise linearly over `warmup` steps; `one_cycle` rises linearly to its
    peak at two fifths of the run and falls linearly to zero.
    """
    if schedule == "one_cycle":
        peak = max(1.0, 0.4 * total)
        return (step + 1) / peak if step < peak else max(0.0, (total - step) / (total - peak))
    if step < warmup:
        return (step + 1) / warmup
    if schedule == "constant":
        return 1.0
    progress = (step - warmup) / max(1, total - warmup)
    return 0.5 * (1 + math.cos(math.pi * progress))
