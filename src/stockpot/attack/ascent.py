"""The ascent that gradient attacks run, and the state of every image in it.

Each image has its own step size, its own best point and its own decision to shorten the step, so
images never influence one another and may leave the batch at any time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from stockpot.attack.losses import Criterion
from stockpot.attack.projection import per_image
from stockpot.attack.task import Outcome, take
from stockpot.attack.victim import Ascent, Victim
from stockpot.score.predictions import predictions


@dataclass
class State:
    """Everything that is known of each image still in the batch."""

    rows: Tensor
    origin: Tensor
    fields: tuple[Tensor, ...]
    now: Tensor
    before: Tensor
    best: Tensor
    gradient: Tensor
    best_gradient: Tensor
    loss: Tensor
    best_loss: Tensor
    last_best: Tensor
    step: Tensor
    rises: Tensor
    reduced: Tensor
    share: Tensor


class StepRule(Protocol):
    """How points move, and what happens at the end of a window of steps."""

    def begin(self, state: State) -> None:
        """Set the first step's length and, for sparse steps, the share of values it moves."""
        ...

    def move(self, state: State, first: bool) -> Tensor:
        """The next point of every image."""
        ...

    def windows(self, steps: int) -> list[int]:
        """The steps after which `adapt` is called."""
        ...

    def adapt(self, state: State, window: int) -> None:
        """Shorten or restore steps and go back to best points, image by image."""
        ...


def climb(
    victim: Victim,
    rule: StepRule,
    criterion: Criterion,
    origin: Tensor,
    start: Tensor,
    fields: tuple[Tensor, ...],
    *,
    steps: int,
    leave: bool,
) -> Outcome:
    """Raise the loss of each image for some steps; `fields[0]` are the labels.

    With `leave` an image that is misclassified leaves at once, with that point as its answer;
    otherwise the answer is the point of highest loss.
    """
    n, device = len(origin), origin.device
    look = victim.ascend(start, criterion, *fields)
    flat = look.gradient.flatten(1).abs().amax(dim=1) == 0
    fallen = predictions(look.logits) != fields[0]
    images, losses = start.clone(), look.loss.clone()
    queries = torch.full((n,), victim.eot, dtype=torch.long, device=device)
    state = State(
        rows=torch.arange(n, device=device),
        origin=origin,
        fields=fields,
        now=start,
        before=start,
        best=start,
        gradient=look.gradient,
        best_gradient=look.gradient,
        loss=look.loss,
        best_loss=look.loss,
        last_best=look.loss,
        step=torch.zeros_like(look.loss),
        rises=look.loss.new_zeros(n),
        # Nothing can be stuck in the first window, which has no earlier best to compare with.
        reduced=torch.ones(n, dtype=torch.bool, device=device),
        share=torch.ones_like(look.loss),
    )
    rule.begin(state)
    if leave and bool(fallen.any()):
        state = take(state, (~fallen).nonzero()[:, 0])
    windows, opened = rule.windows(steps), 0
    for number in range(1, steps + 1) if len(state.rows) else ():
        point = rule.move(state, number == 1)
        state.before, state.now = state.now, point
        look = _look(victim, point, criterion, state, last=number == steps)
        queries[state.rows] += victim.eot
        _remember(state, look)
        wrong = predictions(look.logits) != state.fields[0]
        if not leave:
            # All stay, so nothing need be known here of the values: the device is not waited for.
            fallen = fallen | wrong
        elif bool(wrong.any()):
            gone = state.rows[wrong]
            fallen[gone] = True
            images[gone], losses[gone] = point[wrong], look.loss[wrong]
            state = take(state, (~wrong).nonzero()[:, 0])
        if not len(state.rows):
            break
        if number == windows[0]:
            rule.adapt(state, windows.pop(0) - opened)
            opened, state.rises = number, torch.zeros_like(state.rises)
            state.last_best = state.best_loss
    images[state.rows], losses[state.rows] = state.best, state.best_loss
    return Outcome(images, fallen, losses, queries, torch.zeros_like(queries), flat)


def _look(
    victim: Victim, point: Tensor, criterion: Criterion, state: State, *, last: bool
) -> Ascent:
    if not last:
        return victim.ascend(point, criterion, *state.fields)
    # Nobody steps from the last point, so its gradient is not needed.
    logits = victim.logits(point)
    return Ascent(criterion(logits, *state.fields), state.gradient, logits)


def _remember(state: State, look: Ascent) -> None:
    state.rises = state.rises + (look.loss > state.loss)
    state.loss, state.gradient = look.loss, look.gradient
    better = look.loss > state.best_loss
    where = per_image(better, state.now)
    state.best = torch.where(where, state.now, state.best)
    state.best_gradient = torch.where(where, look.gradient, state.best_gradient)
    state.best_loss = torch.where(better, look.loss, state.best_loss)
