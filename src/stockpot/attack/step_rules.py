"""How APGD's steps adapt: full steps with momentum in l_inf and l_2, sparse ones in l_1.

In l_1 few values move at a time, and how few follows the best point found (Croce and Hein, "Mind
the box", arXiv:2103.01208).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from stockpot.attack.ascent import State
from stockpot.attack.directions import steepest
from stockpot.attack.projection import per_image, project
from stockpot.types import Norm


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
        _return_to_best(state, state.reduced)


@dataclass(frozen=True)
class SparseSteps:
    """l_1: no momentum; the step is restored while the best point grows sparser, else shortened.

    The first step moves a fixed share of all values or, with `follow`, goes by the values that the
    starting point changes, as suits a start that comes from an earlier ascent.
    """

    eps: float
    first_share: float = 0.2
    follow: bool = False

    def begin(self, state: State) -> None:
        """The radius of the ball is the first step."""
        state.step = torch.full_like(state.loss, self.eps)
        state.share = torch.full_like(state.loss, self.first_share)
        if self.follow:
            state.share = _support(state) / 1.5
            state.reduced = torch.zeros_like(state.reduced)

    def move(self, state: State, first: bool) -> Tensor:
        """A projected step on the largest gradient values."""
        step = per_image(state.step, state.now)
        point = state.now + step * steepest("l1", state.gradient, state.share)
        return project("l1", state.origin, point, self.eps)

    def windows(self, steps: int) -> list[int]:
        """Every 4 % of the run."""
        length = max(int(0.04 * steps), 1)
        return list(range(length, steps + length, length))

    def adapt(self, state: State, window: int) -> None:
        """Follow the number of values that the best point changes."""
        support = _support(state)
        # `share` is the last support over 1.5, except at the start, when the last support is all.
        last = torch.where(state.reduced, torch.ones_like(support), state.share * 1.5)
        state.reduced = torch.zeros_like(state.reduced)
        sparser = support / last.clamp(min=1e-12) < 0.95
        shorter = (state.step / 1.5).clamp(self.eps / 10, self.eps)
        state.step = torch.where(sparser, torch.full_like(shorter, self.eps), shorter)
        state.share = support / 1.5
        _return_to_best(state, sparser)


def _support(state: State) -> Tensor:
    """The share of values in which the best point differs from the image."""
    return (state.best != state.origin).flatten(1).to(state.loss).mean(dim=1)


def _return_to_best(state: State, chosen: Tensor) -> None:
    """Put the chosen images back to their best point, with the gradient found there."""
    where = per_image(chosen, state.now)
    state.now = torch.where(where, state.best, state.now)
    state.gradient = torch.where(where, state.best_gradient, state.gradient)
