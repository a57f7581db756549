"""How often answers change along a sequence of frames, and how far the five best move.

    flip probability   share of frames whose answer differs from the frame they are compared with
    top-5 distance     sum over the five best answers there, i = 0 to 4, of |i - min(rank here, 5)|

A frame is compared with the one `step` frames before it; those of noise, which have no order, with
the first (Hendrycks and Dietterich, arXiv:1903.12261, section 4.2).
"""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.score.predictions import finite

BEST = 5


class Sequence:
    """What is remembered of the frames of some pictures: a few answers each, no pixels."""

    def __init__(self, *, noise: bool, step: int = 1) -> None:
        self.noise, self.step = noise, 1 if noise else step
        self._seen = 0
        self._before: list[Tensor] = []
        self._flips: list[Tensor] = []
        self._moves: list[Tensor] = []

    def see(self, outputs: Tensor) -> None:
        """The outputs for the next frame, N x classes."""
        best = outputs.float().sort(dim=1, descending=True, stable=True).indices[:, :BEST]
        # No answer is like no other, not even like silence on another frame.
        self._seen += 1
        best = torch.where(finite(outputs)[:, None], best, -self._seen)
        if len(self._before) == self.step:
            other = self._before[0] if self.noise else self._before.pop(0)
            self._flips.append(other[:, 0] != best[:, 0])
            self._moves.append(top_distance(other, best))
        if len(self._before) < self.step:
            self._before.append(best)

    @property
    def flips(self) -> Tensor:
        """Which comparisons found another answer, N x comparisons."""
        return torch.stack(self._flips, 1)

    @property
    def distances(self) -> Tensor:
        """The top-5 distance of each comparison, N x comparisons."""
        return torch.stack(self._moves, 1)


def top_distance(before: Tensor, now: Tensor) -> Tensor:
    """The top-5 distance between two lists of the best classes, N x up to 5 each."""
    count = before.shape[1]
    same = before[:, :, None] == now[:, None, :]
    place = torch.arange(count, device=before.device)
    # A class that is not among the best here counts as if it came right after them.
    rank = torch.where(same.any(2), same.int().argmax(2), count)
    return (place - rank).abs().sum(1)
