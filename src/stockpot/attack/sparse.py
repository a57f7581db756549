"""Steps of APGD in l_1: few values move at a time, and how few adapts to the best point found.

After Croce and Hein, "Mind the box" (arXiv:2103.01208).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from stockpot.attack.ascent import State, return_to_best
from stockpot.attack.directions import steepest
from stockpot.attack.projection import per_image, project
from stockpot.types import Norm


@dataclass
class SparseSteps:
    """l_1: no momentum; the step is restored while the best point grows sparser, else shortened."""

    eps: float
    start_share: float = 0.2
    norm: Norm = field(default="l1", init=False)

    @property
    def start_step(self) -> float:
        """The radius of the ball."""
        return self.eps

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
        size = state.origin[0].numel()
        support = (state.best != state.origin).flatten(1).sum(dim=1) / size
        # `share` is the last support over 1.5, except at the start, when the last support is all.
        last = torch.where(state.reduced, torch.ones_like(support), state.share * 1.5)
        state.reduced = torch.zeros_like(state.reduced)
        sparser = support / last.clamp(min=1e-12) < 0.95
        shorter = (state.step / 1.5).clamp(self.eps / 10, self.eps)
        state.step = torch.where(sparser, torch.full_like(shorter, self.eps), shorter)
        state.share = support / 1.5
        return_to_best(state, sparser)
