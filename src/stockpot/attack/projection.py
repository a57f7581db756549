"""Exact projections onto a ball around an image, cut by the box [0, 1] of valid pixels.

For l_2 the two sets are projected onto one after the other, which stays inside both and is what
the published attacks do. For l_1 that would be weak: the box takes away much of what the ball
allowed. There the projection onto the intersection is found exactly.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.types import Norm


def project(norm: Norm, origin: Tensor, point: Tensor, eps: float) -> Tensor:
    """The point brought back into the ball of radius eps around the origin, and into the box."""
    if norm == "linf":
        return torch.clamp(point, origin - eps, origin + eps).clamp_(0, 1)
    delta = point - origin
    if norm == "l2":
        return (origin + delta * shrink(l2_norm(delta), eps)).clamp_(0, 1)
    return origin + project_l1(origin, delta, eps)


def shrink(length: Tensor, eps: float) -> Tensor:
    """The factor that brings a length down to eps, and never up."""
    return (eps / length.clamp(min=1e-12)).clamp_(max=1)


def l2_norm(delta: Tensor) -> Tensor:
    """Euclidean length of each image's change, shaped to multiply it."""
    return per_image(torch.linalg.vector_norm(delta.flatten(1), dim=1), delta)


def per_image(values: Tensor, like: Tensor) -> Tensor:
    """One value per image, shaped N x 1 x ... to meet a tensor of images."""
    return values.view(-1, *([1] * (like.ndim - 1)))


def norm_of(norm: Norm, delta: Tensor) -> Tensor:
    """The norm of each image's change."""
    # The general function is ten times slower on a CPU than plain reductions.
    size = delta.flatten(1)
    if norm == "linf":
        return size.abs().amax(dim=1)
    if norm == "l1":
        return size.abs().sum(dim=1)
    return size.square().sum(dim=1).sqrt_()


def project_l1(origin: Tensor, delta: Tensor, eps: float) -> Tensor:
    """The nearest change (in Euclidean distance) inside the l_1 ball that keeps pixels valid.

    The solution has the form sign(v) * clip(|v| - t, 0, room) with one t >= 0 per image, where
    `room` is what the box leaves in the direction of v. The l_1 norm of that is a piecewise linear,
    falling function of t with kinks at |v| and |v| - room; sorting the kinks finds t exactly.
    """
    size = delta.abs().flatten(1)
    base = origin.flatten(1)
    room = torch.where(delta.flatten(1) > 0, 1 - base, base).clamp_(min=0)
    clipped = torch.minimum(size, room)
    outside = clipped.sum(dim=1) > eps
    if size.device.type != "cpu":
        # An accelerator does the work for all sooner than it tells the host which rows need it.
        level = _threshold(size, room, eps).masked_fill(~outside, 0)
        clipped = torch.minimum((size - level[:, None]).clamp_(min=0), room)
    elif outside.any():
        rows = outside.nonzero()[:, 0]
        level = _threshold(size[rows], room[rows], eps)
        clipped[rows] = torch.minimum((size[rows] - level[:, None]).clamp_(min=0), room[rows])
    return torch.copysign(clipped.view_as(delta), delta)


def _threshold(size: Tensor, room: Tensor, eps: float) -> Tensor:
    """The t at which the clipped sizes sum to eps."""
    # Above its size a coordinate is 0; below size - room it is stuck at its room; between, it
    # falls with slope 1. From above, a kink at `size` adds slope and one at size - room ends it.
    kinks = torch.cat([size, size - room], dim=1)
    slope = torch.ones_like(kinks)
    slope[:, size.shape[1] :] = -1
    kinks, order = kinks.sort(dim=1, descending=True)
    slope = slope.gather(1, order).cumsum(dim=1)
    gaps = kinks[:, :-1] - kinks[:, 1:]
    # Sums over thousands of kinks: single precision would blur the answer.
    mass = (slope[:, :-1].double() * gaps.double()).cumsum(dim=1)
    place = torch.searchsorted(mass, torch.full_like(mass[:, :1], eps)).clamp_(
        max=mass.shape[1] - 1
    )
    over = mass.gather(1, place) - eps
    level = kinks.gather(1, place + 1).double() + over / slope.gather(1, place).clamp(min=1)
    return level[:, 0].clamp_(min=0).to(size.dtype)
