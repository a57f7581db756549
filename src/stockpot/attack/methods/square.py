"""Square: random search with square-shaped changes; it needs no gradient (arXiv:1912.00049)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from stockpot.attack import attacks
from stockpot.attack.draws import signs, uniform
from stockpot.attack.losses import margin
from stockpot.attack.squares import Moves, on_sphere, tiles
from stockpot.attack.task import Outcome, Task, attempts, planned, take, untouched
from stockpot.attack.victim import Victim
from stockpot.errors import BadParameterError
from stockpot.score.predictions import predictions
from stockpot.types import Count, Norm


@attacks.register("square", paper="arXiv:1912.00049")
def square(
    victim: Victim, task: Task, *, steps: Count = 5000, restarts: Count = 1, area: float = 0.8
) -> Outcome:
    """Random search: change a square of random place and sign, keep what raises the margin.

    Args:
        steps: queries per image of one run, the first image included.
        restarts: runs with other random numbers, each on the images still standing.
        area: the share of the image that the first squares cover; it shrinks as the search goes on.
    """
    if steps < 1 or restarts < 1 or not 0 < area <= 1:
        raise BadParameterError(
            "square: expected steps >= 1, restarts >= 1 and 0 < area <= 1, "
            f"got {steps}, {restarts} and {area}."
        )

    def attempt(part: Task, rows: Tensor, aim: int, restart: int) -> Outcome:
        return _search(victim, part, steps, area, restart)

    outcome = attempts(task, attempt, restarts=restarts)
    return planned(outcome, restarts * steps * victim.eot)


@dataclass
class _State:
    rows: Tensor
    origin: Tensor
    labels: Tensor
    seeds: Tensor
    best: Tensor
    loss: Tensor
    moves: Moves


_BLOCK = 64  # steps whose random numbers are drawn at once


def _search(victim: Victim, task: Task, steps: int, area: float, restart: int) -> Outcome:
    norm, eps = task.threat.norm, task.threat.radius
    first = _first_image(norm, task.images, task.seeds, eps, restart)
    outcome = untouched(task)
    images, fallen, losses = first.clone(), outcome.fallen, outcome.loss.clone()
    queries = torch.full_like(outcome.queries, steps * victim.eot)
    state = _State(
        torch.arange(len(task), device=first.device),
        task.images,
        task.labels,
        task.seeds,
        first.clone(memory_format=torch.contiguous_format),
        outcome.loss,
        Moves(norm, task.images, eps),
    )
    candidate = first
    for number in range(steps):
        if number % _BLOCK == 0:
            shape = (_BLOCK, 5 + first.shape[1])
            numbers = uniform(state.seeds, shape, 5, restart, number).to(first)
            sides = [_side(number + i, area, first.shape, norm) for i in range(_BLOCK)]
            state.moves.plan(numbers, sides)
        if number:
            candidate = state.moves.propose(state.best, number % _BLOCK)
        logits = victim.logits(candidate)
        found = margin(logits, state.labels).to(state.loss)
        better = (found > state.loss).nonzero()[:, 0]
        if len(better):  # late in a search most proposals fail
            state.best[better], state.loss[better] = candidate[better], found[better]
        wrong = predictions(logits) != state.labels
        if bool(wrong.any()):
            gone = state.rows[wrong]
            fallen[gone] = True
            if task.leave:
                queries[gone] = (number + 1) * victim.eot
                images[gone], losses[gone] = candidate[wrong], found[wrong]
                standing = (~wrong).nonzero()[:, 0]
                state = replace(take(state, standing), moves=state.moves.take(standing))
                if not len(state.rows):
                    break
    images[state.rows], losses[state.rows] = state.best, state.loss
    return Outcome(images, fallen, losses, queries, outcome.planned, outcome.flat)


def _first_image(norm: Norm, origin: Tensor, seeds: Tensor, eps: float, restart: int) -> Tensor:
    _, channels, height, width = origin.shape
    if norm == "linf":
        stripes = signs(seeds, (channels, 1, width), 4, restart).to(origin)
        return (origin + eps * stripes).clamp_(0, 1)
    delta = tiles(norm, signs(seeds, (channels, 5, 5), 4, restart).to(origin), height, width)
    return on_sphere(norm, origin, delta, eps)


def _side(number: int, area: float, shape: torch.Size, norm: Norm) -> int:
    """The side of the square: its area is halved after fixed numbers of queries."""
    halvings = sum(number > mark for mark in (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000))
    height, width = shape[-2:]
    side = max(1, round(math.sqrt(area / 2**halvings * height * width)))
    if norm != "linf":
        side = max(3, side) | 1  # the shapes have a centre
    limit = min(height, width)
    return min(side, limit if norm == "linf" or limit % 2 else limit - 1)
