"""Successive halving over the grid: poor soups leave after a few images."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from stockpot.errors import BadParameterError
from stockpot.pool.pool import Pool
from stockpot.season import seasoners
from stockpot.season.choice import Choice, Context, need_shots
from stockpot.season.evaluate import evaluate
from stockpot.season.grids import affine_grid
from stockpot.season.ranking import ranking
from stockpot.season.shots import Shots
from stockpot.types import Fraction01, Positive


@seasoners.register("racing")
def racing(
    pool: Pool,
    shots: Shots,
    context: Context,
    *,
    low: float = -0.4,
    high: float = 1.4,
    step: Positive = 0.2,
    first: Fraction01 = 0.03,
    keep: Fraction01 = 0.25,
) -> Choice:
    """Race the grid's soups: all on a few images, the better ones on more.

    All soups of a round see the same images. They are ranked by accuracy, by loss where that is
    equal, and by nearness to equal weights where both are; after each round a share of them goes
    on, on as many times more images.

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
        matrix = evaluate(
            pool, soups[torch.from_numpy(alive)], part, context.told(f"racing {len(alive)} soups")
        )
        right: NDArray[np.float64] = matrix.correct.sum(axis=1).astype(np.float64)
        return right, matrix.loss.sum(axis=1, dtype=np.float64)

    generator = torch.Generator().manual_seed(context.seed)
    order = torch.randperm(len(shots), generator=generator).numpy()
    result = race(soups.numpy(), order, judge, first=first, keep=keep, seed=context.seed)
    notes = {
        "rounds": result.rounds,
        "share_of_grid": result.images / (len(soups) * len(shots)),
        "accuracy": result.accuracy,
    }
    return Choice(soups[result.winner], images=result.images, notes=notes)


Judge = Callable[[NDArray[np.intp], NDArray[np.intp]], tuple[NDArray[np.float64], ...]]
"""From candidates and images to each candidate's number of right ones, and its summed loss."""


class Race(NamedTuple):
    """Who won, and what it took."""

    winner: int
    accuracy: float
    images: int
    rounds: list[dict[str, int]]


def race(
    weights: NDArray[np.float64],
    order: NDArray[np.intp],
    judge: Judge,
    *,
    first: float,
    keep: float,
    seed: int = 0,
) -> Race:
    """Rank the candidates (`ranking`), keep the best share and show it more images.

    Args:
        weights: one row per candidate.
        order: the images in the order in which they are shown; all in a round see the same.
        judge: scores candidates on images.
        first: the share of the images in the first round; at least eight are taken.
        keep: the share of candidates that goes on, on 1 / keep times the images.
        seed: of the draw among equals.
    """
    if not (0 < first <= 1 and 0 < keep < 1):
        raise BadParameterError(
            f"expected 0 < first <= 1 and 0 < keep < 1, got {first} and {keep}."
        )
    n, candidates = len(order), len(weights)
    alive = np.arange(candidates)
    right, loss = np.zeros(candidates), np.zeros(candidates)
    done, goal, images = 0, min(n, max(8, math.ceil(first * n))), 0
    rounds = []
    while True:
        more_right, more_loss = judge(alive, order[done:goal])
        right[alive] += more_right
        loss[alive] += np.nan_to_num(more_loss, nan=np.inf)
        images += len(alive) * (goal - done)
        rounds.append({"soups": len(alive), "images": goal})
        alive = alive[ranking(weights[alive], right[alive], loss[alive], seed=seed)]
        if goal == n:
            winner = int(alive[0])
            return Race(winner, float(right[winner]) / n, images, rounds)
        alive = alive[: max(2, math.ceil(keep * len(alive)))]
        # The last few go on to all images at once: another round would cost more than it saves.
        last = len(alive) <= math.ceil(1 / keep)
        done, goal = goal, n if last else min(n, math.ceil(goal / keep))
