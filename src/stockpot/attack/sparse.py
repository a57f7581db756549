"""Steps of APGD in l_1: few values move at a time, and how few adapts to the best point found.

After Croce and Hein, "Mind the box" (arXiv:2103.01208).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from stockpot.attack.ascent import State, return_to_best
from stockpot.attack.directions import steepest
from stockpot.attack.projection import per_image, project


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
        return_to_best(state, sparser)


def _support(state: State) -> Tensor:
    """The share of values in which the best point differs from the image."""
    return (state.best != state.origin).flatten(1).to(state.loss).mean(dim=1)
