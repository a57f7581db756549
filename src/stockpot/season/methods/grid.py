"""Every soup of a grid (Croce et al., arXiv:2302.10164)."""

from __future__ import annotations

import torch

from stockpot.season import seasoners
from stockpot.season.choice import Choice, Context, need_shots
from stockpot.season.evaluate import evaluate
from stockpot.season.grids import affine_grid
from stockpot.season.matrix import Ties
from stockpot.season.pool import Pool
from stockpot.season.shots import Shots


@seasoners.register("grid", paper="arXiv:2302.10164")
def grid(
    pool: Pool,
    shots: Shots,
    context: Context,
    *,
    low: float = -0.4,
    high: float = 1.4,
    step: float = 0.2,
    ties: Ties = "loss",
) -> Choice:
    """Try every affine combination on a grid and keep the most accurate.

    Args:
        low: the smallest weight; 0 makes the soups convex.
        high: the largest weight.
        step: the distance of grid points; `low`, `high` and 1 must be multiples of it.
        ties: which of equally good soups: lowest `loss`, `first`, `random`, or nearest the
            `centroid` of them.
    """
    need_shots("grid", shots)
    soups = affine_grid(len(pool), low=low, high=high, step=step)
    matrix = evaluate(pool, soups, shots, context.unlabelled)
    best = matrix.best(ties=ties, seed=context.seed)
    notes = {"soups": len(soups), "accuracy": float(matrix.accuracy()[best])}
    return Choice(torch.from_numpy(matrix.weights[best]), matrix, matrix.correct.size, notes)
