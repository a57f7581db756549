"""The proposals of random search: where the next square goes, and what it changes.

The numbers of a block of steps are turned into places and signs at once; a step then only copies.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from stockpot.attack.patches import Patches, bump, transfer
from stockpot.attack.projection import per_image, project
from stockpot.types import Norm


class Moves:
    """The coming proposals of each image; in l_inf a square goes to one end of what is allowed."""

    def __init__(self, norm: Norm, origin: Tensor, eps: float) -> None:
        self.norm, self.eps, self.origin = norm, eps, origin
        flat = origin.flatten(2)
        self.ends: tuple[Tensor, ...] = ()
        if norm == "linf":
            self.ends = (flat - eps).clamp_(0, 1), (flat + eps).clamp_(0, 1)
        self.sides: Sequence[int] = ()
        self.numbers = self.corners = self.up = origin.new_zeros(len(origin), 0)

    def take(self, rows: Tensor) -> Moves:
        """The moves of some of the images."""
        part = Moves.__new__(Moves)
        part.norm, part.eps, part.sides = self.norm, self.eps, self.sides
        part.origin = self.origin[rows]
        part.ends = tuple(end[rows] for end in self.ends)
        part.numbers, part.corners, part.up = (
            tensor[rows] for tensor in (self.numbers, self.corners, self.up)
        )
        return part

    def plan(self, numbers: Tensor, sides: Sequence[int]) -> None:
        """Places and signs of a block of steps, from N x steps x (5 + channels) random numbers."""
        height, width = self.origin.shape[-2:]
        free = [[height - side + 1, width - side + 1] * 2 for side in sides]
        self.corners = (numbers[..., :4] * numbers.new_tensor(free)).long()
        self.up = numbers[..., 5:, None] >= 0.5
        self.numbers, self.sides = numbers, sides

    def propose(self, best: Tensor, step: int) -> Tensor:
        """A changed copy of each image's best point."""
        side, corners = self.sides[step], self.corners[:, step]
        if self.norm == "linf":
            return self._square(best, side, corners, self.up[:, step])
        window = Patches(corners[:, 0], corners[:, 1], side)
        other = Patches(corners[:, 2], corners[:, 3], side)
        sign = torch.where(self.up[:, step, ..., None], 1.0, -1.0).to(best)
        shape = bump(self.norm, side, sign)
        turned = self.numbers[:, step, 4, None, None, None] < 0.5
        change = sign * torch.where(turned, shape.T, shape)
        delta = transfer(self.norm, best - self.origin, window, other, change, self.eps)
        return on_sphere(self.norm, self.origin, delta, self.eps)

    def _square(self, best: Tensor, side: int, corners: Tensor, up: Tensor) -> Tensor:
        n, channels, _, width = best.shape
        reach = torch.arange(side, device=best.device)
        inside = (reach[:, None] * width + reach).flatten()
        place = (corners[:, 0] * width + corners[:, 1])[:, None] + inside
        place = place[:, None].expand(n, channels, side * side)
        low, high = (end.gather(2, place) for end in self.ends)
        changed = best.clone()
        changed.view(n, channels, -1).scatter_(2, place, torch.where(up, high, low))
        return changed


def on_sphere(norm: Norm, origin: Tensor, delta: Tensor, eps: float) -> Tensor:
    """A change stretched or cut to the radius (l_2), or brought into the ball (l_1), and valid."""
    if norm == "l1":
        return project("l1", origin, origin + delta, eps)
    length = per_image(delta.flatten(1).norm(dim=1), delta).clamp(min=1e-12)
    return (origin + delta / length * eps).clamp_(0, 1)
