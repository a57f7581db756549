"""Square windows of images, each image with its own place; for random search."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from stockpot.types import Norm


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


def pyramid(side: int, like: Tensor) -> Tensor:
    """A side x side bump of unit length: half rises above zero, half falls below.

    Each half is a stack of nested rectangles whose heights fall off as 1 / k^2 from the centre.
    """
    upper = side // 2 + 1
    bump = torch.cat([_half(upper, side), -_half(side - upper, side)])
    length = float(bump.square().sum().sqrt())
    return (bump / max(length, 1e-12)).to(like)


def _half(height: int, width: int) -> Tensor:
    rows = torch.arange(height)
    columns = torch.arange(width)
    depth = torch.minimum(
        torch.minimum(rows, height - 1 - rows)[:, None],
        torch.minimum(columns, width - 1 - columns)[None, :],
    )
    levels = max((height + 1) // 2, 1)
    heights: Tensor = (1.0 / torch.arange(levels, 0, -1).double() ** 2).cumsum(dim=0)
    return heights[depth.clamp(max=levels - 1)]


def tiles(sign: Tensor, height: int, width: int) -> Tensor:
    """A change made of a grid of bumps, with the given sign for each (N x C x 5 x 5)."""
    count = sign.shape[-1]
    side = min(height, width) // count
    if side < 1:
        return sign.mean(dim=(2, 3), keepdim=True).expand(-1, -1, height, width).clone()
    grid = torch.kron(sign, pyramid(side, sign)[None, None].contiguous())
    delta = sign.new_zeros(*sign.shape[:2], height, width)
    top, left = (height - count * side) // 2, (width - count * side) // 2
    delta[:, :, top : top + count * side, left : left + count * side] = grid
    return delta


def transfer(
    norm: Norm, delta: Tensor, window: Patches, other: Patches, bump: Tensor, eps: float
) -> Tensor:
    """Move what one window spends, and what was not yet spent, into a bump in another window."""
    mask = torch.zeros_like(delta)
    mask = other.write(window.write(mask, torch.ones_like(bump)), torch.ones_like(bump))
    both = delta * mask
    here = window.read(delta)
    if norm == "l2":
        spent = delta.square().sum(dim=(1, 2, 3), keepdim=True)
        spare = (eps**2 - spent).clamp(min=0) / delta.shape[1]
        budget = (both.square().sum(dim=(2, 3), keepdim=True) + spare).sqrt()
        own = here / here.square().sum(dim=(2, 3), keepdim=True).sqrt().clamp(min=1e-12)
        shape = bump + own
        shape = shape / shape.square().sum(dim=(2, 3), keepdim=True).sqrt().clamp(min=1e-12)
    else:
        spent = delta.abs().sum(dim=(1, 2, 3), keepdim=True)
        spare = (eps - spent).clamp(min=0) / delta.shape[1]
        budget = both.abs().sum(dim=(2, 3), keepdim=True) + spare
        own = here / here.abs().sum(dim=(2, 3), keepdim=True).clamp(min=1e-12)
        shape = bump / bump.abs().sum(dim=(2, 3), keepdim=True).clamp(min=1e-12) + own
        shape = shape / shape.abs().sum(dim=(2, 3), keepdim=True).clamp(min=1e-12)
    cleared = other.write(delta, torch.zeros_like(shape))
    return window.write(cleared, shape * budget)
