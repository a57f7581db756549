"""The ascent that APGD runs: the state of every image, and how its steps adapt.

Each image has its own step size, its own best point and its own decision to shorten the step, so
images never influence one another and may leave the batch at any time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from stockpot.attack.directions import steepest
from stockpot.attack.losses import Criterion
from stockpot.attack.projection import per_image, project
from stockpot.attack.task import Outcome, take
from stockpot.attack.victim import Ascent, Victim
from stockpot.types import Norm


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


@dataclass(frozen=True)
class DenseSteps:
    """l_inf and l_2: full steps with momentum; a step that no longer helps is halved."""

    norm: Norm
    eps: float
    rho: float = 0.75

    def begin(self, state: State) -> None:
        """The first step crosses the whole ball."""
        state.step = torch.full_like(state.loss, 2 * self.eps)

    def move(self, state: State, first: bool) -> Tensor:
        """A projected step, pulled a quarter of the way along the last movement."""
        step = per_image(state.step, state.now)
        plain = state.now + step * steepest(self.norm, state.gradient)
        plain = project(self.norm, state.origin, plain, self.eps)
        if first:
            return plain
        drift = 0.75 * plain + 0.5 * state.now - 0.25 * state.before
        return project(self.norm, state.origin, drift, self.eps)

    def windows(self, steps: int) -> list[int]:
        """The first window is 22 % of the run; each next one is 3 % shorter, down to 6 %."""
        length = max(int(0.22 * steps), 1)
        ends = [length]
        while ends[-1] < steps:
            length = max(length - max(int(0.03 * steps), 1), max(int(0.06 * steps), 1))
            ends.append(ends[-1] + length)
        return ends

    def adapt(self, state: State, window: int) -> None:
        """Halve where the loss rose too seldom, or the best point stayed and the step too."""
        seldom = state.rises <= self.rho * window
        stuck = ~state.reduced & (state.last_best >= state.best_loss)
        state.reduced = seldom | stuck
        state.step = torch.where(state.reduced, state.step / 2, state.step)
        return_to_best(state, state.reduced)


def return_to_best(state: State, chosen: Tensor) -> None:
    """Put the chosen images back to their best point, with the gradient found there."""
    where = per_image(chosen, state.now)
    state.now = torch.where(where, state.best, state.now)
    state.gradient = torch.where(where, state.best_gradient, state.gradient)


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
    fallen = look.logits.argmax(dim=1) != fields[0]
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
        wrong = look.logits.argmax(dim=1) != state.fields[0]
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
