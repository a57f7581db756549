"""The nearest point of a hyperplane inside the box [0, 1], in each norm.

FAB replaces the decision boundary by a hyperplane w . x = b and asks for the smallest valid change
that reaches it. In every norm the answer is a budget spent along coordinates: as the budget grows,
each coordinate moves towards the plane until the box stops it, and the gain w . delta rises. Where
the plane cannot be reached inside the box, the answer is the corner nearest to it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.types import Norm


def step_to_plane(norm: Norm, points: Tensor, normals: Tensor, offsets: Tensor) -> Tensor:
    """The smallest change of each point (N x D) that reaches its plane, cut by the box."""
    need = offsets - (normals * points).sum(dim=1)
    toward = normals.sign() * need.sign()[:, None]
    weight = normals.abs()
    # 1 - point where the change is upward, point where it is downward; a choice by a mask of
    # booleans would take ten times as long on a CPU.
    room = (0.5 - points).mul_(toward).add_(0.5).clamp_(min=0)
    sizes = _SIZES[norm](weight, room, need.abs())
    return toward * sizes


def _linf(weight: Tensor, room: Tensor, need: Tensor) -> Tensor:
    # All coordinates move alike; one stops when its room is used up.
    return torch.minimum(room, _budget(weight, room, need)[:, None])


def _l2(weight: Tensor, room: Tensor, need: Tensor) -> Tensor:
    # A coordinate moves in proportion to its weight, until its room is used up.
    ends = torch.where(weight > 0, room / weight.clamp(min=1e-20), torch.zeros_like(room))
    return torch.minimum(room, _budget(weight * weight, ends, need)[:, None] * weight)


def _l1(weight: Tensor, room: Tensor, need: Tensor) -> Tensor:
    # The heaviest coordinates first, each to its full room, the last one in part.
    heavy, order = weight.sort(dim=1, descending=True)
    space = room.gather(1, order)
    gain = heavy * space
    before = gain.cumsum(dim=1) - gain
    part = ((need[:, None] - before).clamp(min=0) / heavy.clamp(min=1e-20)).minimum(space)
    return torch.zeros_like(part).scatter(1, order, part)


def _budget(speed: Tensor, ends: Tensor, need: Tensor) -> Tensor:
    """The smallest r with sum(speed * min(r, ends)) = need; the last end where there is none.

    The sum is concave and piecewise linear in r, so Newton's method started at 0 comes up to the
    answer from below and is exact once no further coordinate stops: a few passes, without a sort.
    """
    if need.device.type != "cpu":
        return torch.minimum(_blind_budget(speed, ends, need), ends.amax(dim=1))
    budget = torch.zeros_like(need)
    lacking, rows = need, torch.arange(len(need), device=need.device)
    fast, last, whole = speed, ends, need
    for _ in range(ends.shape[1] + 1):
        now = budget[rows]
        moving = torch.gt(last, now[:, None], out=torch.empty_like(last))
        slope = moving.mul_(fast).sum(dim=1)
        further = (slope > 0) & (lacking > 1e-6 * whole)
        left = int(further.sum())
        if not left:
            break
        now = torch.where(further, now + lacking / slope.clamp(min=1e-30), now)
        budget[rows] = now
        if left < len(rows) // 2:  # few are left after the second step
            chosen = further.nonzero()[:, 0]
            rows, fast, last = rows[chosen], fast[chosen], last[chosen]
            whole, now = whole[chosen], now[chosen]
        lacking = whole - torch.minimum(last, now[:, None]).mul_(fast).sum(dim=1)
    return torch.minimum(budget, ends.amax(dim=1))


def _blind_budget(speed: Tensor, ends: Tensor, need: Tensor) -> Tensor:
    """The same in so many passes, whether they are needed or not: the device is not waited for.

    On trained networks three or four passes suffice. A budget that is not found by then is too
    small, and the walk falls short by what is left.
    """
    budget, lacking = torch.zeros_like(need), need
    for _ in range(_PASSES):
        slope = ((ends > budget[:, None]) * speed).sum(dim=1)
        further = (slope > 0) & (lacking > 1e-6 * need)
        budget = torch.where(further, budget + lacking / slope.clamp(min=1e-30), budget)
        lacking = need - torch.minimum(ends, budget[:, None]).mul_(speed).sum(dim=1)
    return budget


_PASSES = 8
_SIZES = {"linf": _linf, "l2": _l2, "l1": _l1}
