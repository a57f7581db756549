"""The ascent that gradient attacks run, and the state of every image in it.

Each image has its own step size, its own best point and its own decision to shorten the step, so
images never influence one another and may leave the batch at any time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from stockpot.attack.blocks import Answers
from stockpot.attack.losses import Criterion
from stockpot.attack.projection import per_image
from stockpot.attack.task import Outcome
from stockpot.attack.victim import Ascent, Victim
from stockpot.score.predictions import predictions

_EVERY = 8  # steps after which fallen images leave, where they leave in blocks


@dataclass
class State:
    """Everything that is known of each image still in the batch."""

    rows: Tensor
    done: Tensor
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
    fallen: Tensor
    found: Tensor
    found_loss: Tensor
    """Where an image first fell, and the loss there."""
    queries: Tensor

    @property
    def labels(self) -> Tensor:
        """The right classes."""
        return self.fields[0]


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

    With `leave` an image that is misclassified leaves, with that point as its answer; otherwise the
    answer is the point of highest loss.
    """
    look = victim.ascend(start, criterion, *fields)
    flat = look.gradient.flatten(1).abs().amax(dim=1) == 0
    state = _begun(victim, origin, start, fields, look, leave)
    rule.begin(state)
    blocks, answers = victim.blocks(_EVERY), Answers.of(start, look.loss)
    if leave:  # where nobody leaves, as in training, no value is waited for
        state = blocks.settled(state, answers)
    key = "climb", rule, criterion, leave, victim.eot
    windows, opened = rule.windows(steps), 0
    for number in range(1, steps + 1) if len(state.rows) else ():
        step = partial(_step, victim, rule, criterion, leave, number == 1, number == steps)
        plain = number in (1, steps)  # these differ from the others
        state = step(state) if plain else blocks.run(key, steps - number, step, state)
        if leave and blocks.due(number):
            state = blocks.settled(state, answers)
            if not len(state.rows):
                break
        if number == windows[0]:
            rule.adapt(state, windows.pop(0) - opened)
            opened, state.rises = number, torch.zeros_like(state.rises)
            state.last_best = state.best_loss
    if leave:
        state = blocks.settled(state, answers)
    answers.put(state.rows, state.best, state.fallen, state.best_loss, state.queries)
    return answers.outcome(flat)


def _begun(
    victim: Victim,
    origin: Tensor,
    start: Tensor,
    fields: tuple[Tensor, ...],
    look: Ascent,
    leave: bool,
) -> State:
    n, device = len(origin), origin.device
    fallen = predictions(look.logits) != fields[0]
    return State(
        rows=torch.arange(n, device=device),
        done=fallen if leave else torch.zeros_like(fallen),
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
        fallen=fallen,
        found=start,
        found_loss=look.loss,
        queries=torch.full((n,), victim.eot, dtype=torch.long, device=device),
    )


def _step(
    victim: Victim,
    rule: StepRule,
    criterion: Criterion,
    leave: bool,
    first: bool,
    last: bool,
    state: State,
) -> State:
    """Move every image and look where it is; nothing is asked of the values."""
    point = rule.move(state, first)
    look = _look(victim, point, criterion, state, last=last)
    state.before, state.now = state.now, point
    _remember(state, look)
    state.queries = state.queries + victim.eot * ~state.done
    wrong = predictions(look.logits) != state.fields[0]
    if leave:
        new = wrong & ~state.done
        state.found = torch.where(per_image(new, point), point, state.found)
        state.found_loss = torch.where(new, look.loss, state.found_loss)
        state.done = state.done | new
    state.fallen = state.fallen | wrong
    return state


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
