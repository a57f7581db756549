"""Every soup of a grid (Croce et al., arXiv:2302.10164)."""

from __future__ import annotations

from typing import Any

import torch

from stockpot.attack.threat import ThreatUnion, parse_union
from stockpot.pool.pool import Pool
from stockpot.season import seasoners
from stockpot.season.choice import Choice, Context, need_shots
from stockpot.season.evaluate import evaluate
from stockpot.season.grids import affine_grid
from stockpot.season.matrix import Ties
from stockpot.season.robust import Attacked
from stockpot.season.shots import Shots
from stockpot.types import Count, Positive


@seasoners.register("grid", paper="arXiv:2302.10164")
def grid(
    pool: Pool,
    shots: Shots,
    context: Context,
    *,
    low: float = -0.4,
    high: float = 1.4,
    step: Positive = 0.2,
    ties: Ties = "loss",
    threats: ThreatUnion = "",
    attack_steps: Count = 20,
) -> Choice:
    """Try every affine combination on a grid and keep the most accurate, clean or under attack.

    Args:
        low: the smallest weight; 0 makes the soups convex.
        high: the largest weight.
        step: the distance of grid points; `low`, `high` and 1 must be multiples of it.
        ties: which of equally good soups: lowest `loss` (then the one nearest to equal weights),
            `first`, `random`, or nearest the `centroid` of them.
        threats: such as `linf:8/255,l1:12`: keep the soup that is right on most images under all of
            them, by APGD, and score it so. Without, clean images decide.
        attack_steps: of each APGD.
    """
    need_shots("grid", shots)
    soups = affine_grid(len(pool), low=low, high=high, step=step)
    under = None
    if threats:
        union = parse_union(threats if isinstance(threats, str) else ",".join(threats))
        under = Attacked(union, attack_steps)
    judge = under.matrix if under else evaluate
    matrix = judge(pool, soups, shots, context.told("trying soups"))
    best = matrix.best(ties=ties, seed=context.seed)
    notes: dict[str, Any] = {"soups": len(soups), "accuracy": float(matrix.accuracy()[best])}
    if under:
        notes["decided under"] = str(under.threats)
    return Choice(torch.from_numpy(matrix.weights[best]), matrix, under, matrix.correct.size, notes)
