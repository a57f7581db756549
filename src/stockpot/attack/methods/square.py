"""Square: random search with square-shaped changes; it needs no gradient (arXiv:1912.00049)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from stockpot.attack import attacks
from stockpot.attack.blocks import Answers
from stockpot.attack.draws import signs, uniform
from stockpot.attack.losses import margin
from stockpot.attack.projection import per_image
from stockpot.attack.squares import (
    Plan,
    ends,
    masked_square,
    on_sphere,
    planned_moves,
    proposal,
    tiles,
)
from stockpot.attack.task import Outcome, Task, attempts, planned
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
    done: Tensor
    fallen: Tensor
    labels: Tensor
    seeds: Tensor
    origin: Tensor
    ends: tuple[Tensor, ...]
    """In l_inf, the lowest and the highest value that a pixel may take."""
    best: Tensor
    loss: Tensor
    candidate: Tensor
    found: Tensor
    found_loss: Tensor
    queries: Tensor
    plan: tuple[Tensor, ...]
    """The coming proposals."""
    clock: Tensor
    """Which of them is next; the same for all."""


_BLOCK = 64  # steps whose random numbers are drawn at once
_EVERY = 32  # steps after which fallen images leave, where they leave in blocks


def _search(victim: Victim, task: Task, steps: int, area: float, restart: int) -> Outcome:
    norm, eps = task.threat.norm, task.threat.radius
    state = _begun(task, _first_image(norm, task.images, task.seeds, eps, restart))
    blocks, answers = victim.blocks(_EVERY), Answers.of(task.images, state.loss)
    state = blocks.settled(state, answers)
    shape = state.origin.shape
    judge = partial(_judged, victim, task.leave)
    square = partial(_squared, judge)
    key = "square", norm, task.leave, victim.eot
    for number in range(steps):
        step = number % _BLOCK
        if step == 0:
            numbers = uniform(state.seeds, (_BLOCK, 5 + shape[1]), 5, restart, number)
            sides = [_side(number + i, area, shape, norm) for i in range(_BLOCK)]
            state.plan = planned_moves(numbers.to(state.best), sides, *shape[2:])
            state.clock = torch.zeros_like(state.rows)
        if blocks.graphs is not None and norm == "linf" and number:
            # The square itself is made inside the captured step, whose number the device counts.
            state = blocks.run((*key, "whole"), steps - number, square, state)
        else:
            if number:
                state.candidate = proposal(
                    norm, state.best, state.origin, state.ends, Plan(*state.plan), step,
                    sides[step], eps,
                )  # fmt: skip
            state = blocks.run(key, steps - number, judge, state)
        if task.leave and blocks.due(number):
            state = blocks.settled(state, answers)
            if not len(state.rows):
                break
    state = blocks.settled(state, answers)
    answers.put(state.rows, state.best, state.fallen, state.loss, state.queries)
    return answers.outcome(torch.zeros_like(task.labels, dtype=torch.bool))


def _begun(task: Task, first: Tensor) -> _State:
    """Nothing looked at yet."""
    rows = torch.arange(len(task), device=first.device)
    none = torch.zeros_like(rows, dtype=torch.bool)
    low = first.new_full((len(task),), -torch.inf)
    return _State(
        rows=rows,
        done=none,
        fallen=none,
        labels=task.labels,
        seeds=task.seeds,
        origin=task.images,
        ends=ends(task.threat.norm, task.images, task.threat.radius),
        best=first.clone(memory_format=torch.contiguous_format),
        loss=low,
        candidate=first,
        found=first.clone(),
        found_loss=low,
        queries=torch.zeros_like(rows),
        plan=(),
        clock=torch.zeros_like(rows),
    )


def _squared(judge: Callable[[_State], _State], state: _State) -> _State:
    """Propose a square and judge it."""
    candidate = masked_square(state.best, state.ends, Plan(*state.plan), state.clock[:1])
    judged = judge(replace(state, candidate=candidate))
    return replace(judged, candidate=state.candidate)


def _judged(victim: Victim, leave: bool, state: _State) -> _State:
    """Look at the candidates; those that raise the margin are kept."""
    candidate = state.candidate
    logits = victim.logits(candidate)
    found = margin(logits, state.labels).to(state.loss)
    better = found > state.loss
    wrong = predictions(logits) != state.labels
    new = wrong & ~state.done
    return replace(
        state,
        best=_kept(state.best, candidate, better),
        loss=torch.where(better, found, state.loss),
        found=_kept(state.found, candidate, new),
        found_loss=torch.where(new, found, state.found_loss),
        queries=state.queries + victim.eot * ~state.done,
        fallen=state.fallen | wrong,
        done=state.done | wrong if leave else state.done,
        clock=state.clock + 1,
    )


def _kept(known: Tensor, new: Tensor, chosen: Tensor) -> Tensor:
    """The images with some replaced."""
    if known.device.type != "cpu":
        return torch.where(per_image(chosen, known), new, known)
    rows = chosen.nonzero()[:, 0]  # late in a search most proposals fail, and none is copied
    return known.index_copy_(0, rows, new[rows]) if len(rows) else known


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
