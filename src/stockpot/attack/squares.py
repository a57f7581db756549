"""The proposals of random search: where the next square goes, and what it changes.

The numbers of a block of steps are turned into places and signs at once; a step then only copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from stockpot.attack.projection import per_image, project
from stockpot.types import Norm


class Plan(NamedTuple):
    """The coming proposals of each image, N x steps x ..."""

    corners: Tensor
    """Top and left of two windows."""
    up: Tensor
    """For each channel, whether its change is upward."""
    turned: Tensor
    """Whether the change lies on its side."""
    sides: Tensor


def planned_moves(numbers: Tensor, sides: Sequence[int], height: int, width: int) -> Plan:
    """Places and signs of some steps, from N x steps x (5 + channels) random numbers."""
    free = [[height - side + 1, width - side + 1] * 2 for side in sides]
    corners = (numbers[..., :4] * numbers.new_tensor(free)).long()
    lengths = torch.tensor(sides, device=numbers.device).expand(numbers.shape[:2]).contiguous()
    return Plan(corners, numbers[..., 5:, None] >= 0.5, numbers[..., 4] < 0.5, lengths)


def ends(norm: Norm, origin: Tensor, eps: float) -> tuple[Tensor, ...]:
    """In l_inf, the two ends of what is allowed, to one of which a square goes."""
    if norm != "linf":
        return ()
    return (origin - eps).clamp_(0, 1), (origin + eps).clamp_(0, 1)


def proposal(
    norm: Norm, best: Tensor, origin: Tensor, limits: tuple[Tensor, ...], plan: Plan, step: int,
    side: int, eps: float,
) -> Tensor:  # fmt: skip
    """A changed copy of each image's best point."""
    corners, up = plan.corners[:, step], plan.up[:, step]
    if norm == "linf":
        return _square(best, limits, side, corners, up)
    window = Patches(corners[:, 0], corners[:, 1], side)
    other = Patches(corners[:, 2], corners[:, 3], side)
    sign = torch.where(up[..., None], 1.0, -1.0).to(best)
    shape = bump(norm, side, sign)
    turned = plan.turned[:, step, None, None, None]
    change = sign * torch.where(turned, shape.T, shape)
    delta = transfer(norm, best - origin, window, other, change, eps)
    return on_sphere(norm, origin, delta, eps)


def _square(
    best: Tensor, limits: tuple[Tensor, ...], side: int, corners: Tensor, up: Tensor
) -> Tensor:
    n, channels, _, width = best.shape
    reach = torch.arange(side, device=best.device)
    inside = (reach[:, None] * width + reach).flatten()
    place = (corners[:, 0] * width + corners[:, 1])[:, None] + inside
    place = place[:, None].expand(n, channels, side * side)
    low, high = (end.flatten(2).gather(2, place) for end in limits)
    changed = best.clone()
    changed.view(n, channels, -1).scatter_(2, place, torch.where(up, high, low))
    return changed


def masked_square(best: Tensor, limits: tuple[Tensor, ...], plan: Plan, step: Tensor) -> Tensor:
    """The same in l_inf when the number of the step is known to the device alone."""
    corners, up = plan.corners.index_select(1, step)[:, 0], plan.up.index_select(1, step)[:, 0]
    side = plan.sides.index_select(1, step)
    height, width = best.shape[-2:]
    down = torch.arange(height, device=best.device) - corners[:, :1]
    right = torch.arange(width, device=best.device) - corners[:, 1:2]
    rows, columns = (down >= 0) & (down < side), (right >= 0) & (right < side)
    inside = rows[:, None, :, None] & columns[:, None, None, :]
    low, high = limits
    return torch.where(inside, torch.where(up[..., None], high, low), best)


def on_sphere(norm: Norm, origin: Tensor, delta: Tensor, eps: float) -> Tensor:
    """A change stretched or cut to the radius (l_2), or brought into the ball (l_1), and valid."""
    if norm == "l1":
        return project("l1", origin, origin + delta, eps)
    length = per_image(delta.flatten(1).norm(dim=1), delta).clamp(min=1e-12)
    return (origin + delta / length * eps).clamp_(0, 1)


@dataclass(frozen=True)
class Patches:
    """One window per image: top, left and the side that all share."""

    top: Tensor
    left: Tensor
    side: int

    @cached_property
    def index(self) -> tuple[Tensor, ...]:
        """What to index an N x C x H x W tensor with, all channels kept."""
        reach = torch.arange(self.side, device=self.top.device)
        batch = torch.arange(len(self.top), device=self.top.device)
        rows, columns = self.top[:, None] + reach, self.left[:, None] + reach
        return batch[:, None, None], rows[:, :, None], columns[:, None, :]

    def read(self, images: Tensor) -> Tensor:
        """The windows' content, N x C x side x side."""
        batch, rows, columns = self.index
        return images.permute(0, 2, 3, 1)[batch, rows, columns].permute(0, 3, 1, 2)

    def write(self, images: Tensor, content: Tensor) -> Tensor:
        """A copy of the images with the windows' content replaced."""
        changed = images.clone()
        batch, rows, columns = self.index
        changed.permute(0, 2, 3, 1)[batch, rows, columns] = content.permute(0, 2, 3, 1)
        return changed


def bump(norm: Norm, side: int, like: Tensor) -> Tensor:
    """A side x side change of unit norm: a peak above zero, and one below it beside it.

    Each is a stack of centred squares whose heights fall off as their radius grows, steeply in l_1,
    where a change should be sparse.
    """
    power = 4 if norm == "l1" else 2
    upper = side // 2
    shape = torch.cat([_peak(upper, side, power), -_peak(side - upper, side, power)])
    length = float(shape.abs().sum() if norm == "l1" else shape.square().sum().sqrt())
    return (shape / max(length, 1e-12)).to(like)


def _peak(height: int, width: int, power: int) -> Tensor:
    down = (torch.arange(height) - height // 2).abs()[:, None]
    across = (torch.arange(width) - width // 2).abs()[None, :]
    radius = torch.maximum(down.expand(height, width), across.expand(height, width))
    reach = max(height, width) // 2 + 1
    levels = 1.0 / torch.arange(1, reach + 1).double() ** power
    return levels.flip(0).cumsum(dim=0).flip(0)[radius]


def tiles(norm: Norm, sign: Tensor, height: int, width: int) -> Tensor:
    """A change made of a grid of bumps, with the given sign for each (N x C x 5 x 5)."""
    count = sign.shape[-1]
    side = min(height, width) // count
    if side < 1:
        return sign.mean(dim=(2, 3), keepdim=True).expand(-1, -1, height, width).clone()
    grid = torch.kron(sign, bump(norm, side, sign)[None, None].contiguous())
    delta = sign.new_zeros(*sign.shape[:2], height, width)
    top, left = (height - count * side) // 2, (width - count * side) // 2
    delta[:, :, top : top + count * side, left : left + count * side] = grid
    return delta


def transfer(
    norm: Norm, delta: Tensor, window: Patches, other: Patches, change: Tensor, eps: float
) -> Tensor:
    """Move what one window spends, and what was not yet spent, into a change of another window.

    In l_1 each channel is given the whole budget: the projection that follows cuts the surplus,
    and with it the small values.
    """
    mask = torch.zeros_like(delta)
    mask = other.write(window.write(mask, torch.ones_like(change)), torch.ones_like(change))
    both = delta * mask
    here = window.read(delta)
    if norm == "l2":
        spent = delta.square().sum(dim=(1, 2, 3), keepdim=True)
        spare = (eps**2 - spent).clamp(min=0) / delta.shape[1]
        budget = (both.square().sum(dim=(2, 3), keepdim=True) + spare).sqrt()
        own = here / here.square().sum(dim=(2, 3), keepdim=True).sqrt().clamp(min=1e-12)
        shape = change + own
        shape = shape / shape.square().sum(dim=(2, 3), keepdim=True).sqrt().clamp(min=1e-12)
    else:
        spent = delta.abs().sum(dim=(1, 2, 3), keepdim=True)
        spare = (eps - spent).clamp(min=0) / delta.shape[1]
        budget = (both.abs().sum(dim=(2, 3), keepdim=True) + spare) * delta.shape[1]
        own = here / here.abs().sum(dim=(2, 3), keepdim=True).clamp(min=1e-12)
        shape = change + own
        shape = shape / shape.abs().sum(dim=(2, 3), keepdim=True).clamp(min=1e-12)
    cleared = other.write(delta, torch.zeros_like(shape))
    return window.write(cleared, shape * budget)
