"""Learning rates over a run, as a factor on the peak for each step."""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["cosine", "one_cycle", "cosine_cycle", "constant"]

# What torch's OneCycleLR starts and ends with, and how far it moves AdamW's first beta.
_START, _END = 1 / 25, 1 / 25e4
_HIGH_BETA, _LOW_BETA = 0.95, 0.85


def factor(schedule: Schedule, step: int, total: int, warmup: int) -> float:
    """The share of the peak learning rate at a step (0 is the first).

    `cosine` and `constant` rise linearly over `warmup` steps; `one_cycle` rises linearly to its
    peak at two fifths of the run and falls linearly to zero; `cosine_cycle` rises along a cosine
    from a 25th of the peak over `warmup` steps and falls along one to almost nothing.
    """
    if schedule == "cosine_cycle":
        rising, share = _phase(step, total, warmup)
        return _between(_START, 1.0, share) if rising else _between(1.0, _END, share)
    if schedule == "one_cycle":
        peak = max(1.0, 0.4 * total)
        return (step + 1) / peak if step < peak else max(0.0, (total - step) / (total - peak))
    if step < warmup:
        return (step + 1) / warmup
    if schedule == "constant":
        return 1.0
    progress = (step - warmup) / max(1, total - warmup)
    return 0.5 * (1 + math.cos(math.pi * progress))


def first_beta(schedule: Schedule, step: int, total: int, warmup: int) -> float | None:
    """AdamW's first beta at a step, where the schedule moves it: low when the rate is high."""
    if schedule != "cosine_cycle":
        return None
    rising, share = _phase(step, total, warmup)
    ends = (_HIGH_BETA, _LOW_BETA) if rising else (_LOW_BETA, _HIGH_BETA)
    return _between(*ends, share)


def _phase(step: int, total: int, warmup: int) -> tuple[bool, float]:
    """Whether the rate still rises, and the share of that phase that is over."""
    peak = max(warmup - 1, 0)
    if step < peak:
        return True, step / peak
    return False, (step - peak) / max(1, total - 1 - peak)


def _between(start: float, end: float, share: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))
