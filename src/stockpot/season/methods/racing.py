"""Successive halving over the grid: poor soups leave after a few images."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from stockpot.season import seasoners
from stockpot.season.choice import Choice, Context, need_shots
from stockpot.season.evaluate import evaluate
from stockpot.season.grids import affine_grid
from stockpot.season.pool import Pool
from stockpot.season.race import race
from stockpot.season.shots import Shots


@seasoners.register("racing")
def racing(
    pool: Pool,
    shots: Shots,
    context: Context,
    *,
    low: float = -0.4,
    high: float = 1.4,
    step: float = 0.2,
    first: float = 0.03,
    keep: float = 0.25,
) -> Choice:
    """Race the grid's soups: all on a few images, the better ones on more.

    All soups of a round see the same images. They are ranked by accuracy, and by loss where that
    is equal; after each round a share of them goes on, on as many times more images.

    Args:
        low: the smallest weight; 0 makes the soups convex.
        high: the largest weight.
        step: the distance of grid points.
        first: the share of the images in the first round; at least eight are taken.
        keep: the share of soups that goes on after each round.
    """
    need_shots("racing", shots)
    soups = affine_grid(len(pool), low=low, high=high, step=step)

    def judge(
        alive: NDArray[np.intp], rows: NDArray[np.intp]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        part = shots.take(torch.from_numpy(rows), context.batch_size)
        matrix = evaluate(pool, soups[torch.from_numpy(alive)], part, context.unlabelled)
        right: NDArray[np.float64] = matrix.correct.sum(axis=1).astype(np.float64)
        return right, matrix.loss.sum(axis=1, dtype=np.float64)

    generator = torch.Generator().manual_seed(context.seed)
    order = torch.randperm(len(shots), generator=generator).numpy()
    result = race(len(soups), order, judge, first=first, keep=keep)
    notes = {
        "rounds": result.rounds,
        "share_of_grid": result.images / (len(soups) * len(shots)),
        "accuracy": result.accuracy,
    }
    return Choice(soups[result.winner], images=result.images, notes=notes)
