"""Successive halving: candidates leave after few images, the better ones see more."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stockpot.errors import BadParameterError

Judge = Callable[[NDArray[np.intp], NDArray[np.intp]], tuple[NDArray[np.float64], ...]]
"""From candidates and images to each candidate's number of right ones, and its summed loss."""


class Race(NamedTuple):
    """Who won, and what it took."""

    winner: int
    accuracy: float
    images: int
    rounds: list[dict[str, int]]


def race(
    candidates: int, order: NDArray[np.intp], judge: Judge, *, first: float, keep: float
) -> Race:
    """Rank by accuracy (loss where that is equal); keep the best share and show it more images.

    Args:
        candidates: how many there are.
        order: the images in the order in which they are shown; all in a round see the same.
        judge: scores candidates on images.
        first: the share of the images in the first round; at least eight are taken.
        keep: the share of candidates that goes on, on 1 / keep times the images.
    """
    if not (0 < first <= 1 and 0 < keep < 1):
        raise BadParameterError(
            f"expected 0 < first <= 1 and 0 < keep < 1, got {first} and {keep}."
        )
    n = len(order)
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
        alive = alive[np.lexsort((loss[alive], -right[alive]))]
        if goal == n:
            winner = int(alive[0])
            return Race(winner, float(right[winner]) / n, images, rounds)
        alive = alive[: max(2, math.ceil(keep * len(alive)))]
        # The last few go on to all images at once: another round would cost more than it saves.
        last = len(alive) <= math.ceil(1 / keep)
        done, goal = goal, n if last else min(n, math.ceil(goal / keep))
