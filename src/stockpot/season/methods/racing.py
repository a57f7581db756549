"""Successive halving over the grid: poor soups leave after a few images."""

from __future__ import annotations

import math

import numpy as np
import torch

from stockpot.errors import BadParameterError
from stockpot.season import seasoners
from stockpot.season.choice import Choice, Context, need_shots
from stockpot.season.evaluate import evaluate
from stockpot.season.grids import affine_grid
from stockpot.season.pool import Pool
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
    if not (0 < first <= 1 and 0 < keep < 1):
        raise BadParameterError(
            f"racing: expected 0 < first <= 1 and 0 < keep < 1, got {first} and {keep}."
        )
    soups = affine_grid(len(pool), low=low, high=high, step=step)
    generator = torch.Generator().manual_seed(context.seed)
    order = torch.randperm(len(shots), generator=generator)
    alive = np.arange(len(soups))
    right, loss = np.zeros(len(soups)), np.zeros(len(soups))
    done, goal, images = 0, min(len(shots), max(8, math.ceil(first * len(shots)))), 0
    rounds = []
    while True:
        part = shots.take(order[done:goal], context.batch_size)
        matrix = evaluate(pool, soups[alive], part, context.unlabelled)
        right[alive] += matrix.correct.sum(axis=1)
        loss[alive] += np.nan_to_num(matrix.loss.sum(axis=1), nan=np.inf)
        images += matrix.correct.size
        rounds.append({"soups": len(alive), "images": goal})
        ranked = alive[np.lexsort((loss[alive], -right[alive]))]
        if goal == len(shots):
            break
        alive = ranked[: max(2, math.ceil(keep * len(alive)))]
        # The last few go on to all images at once: another round would cost more than it saves.
        last = len(alive) <= math.ceil(1 / keep)
        done, goal = goal, len(shots) if last else min(len(shots), math.ceil(goal / keep))
    best = int(ranked[0])
    share = images / (len(soups) * len(shots))
    notes = {"rounds": rounds, "share_of_grid": share, "accuracy": right[best] / len(shots)}
    return Choice(soups[best], images=images, notes=notes)
