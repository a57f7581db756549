"""Inner products of the members of a tensor, added up stretch by stretch in fp64.

What lies in the span of the members, lengths and angles between them, follows from these numbers
alone, so that a tensor need not be in memory whole, and no two members at once but in stretches.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.fuse.fuser import Slab


def products(slab: Slab, *, changes: bool) -> Tensor:
    """The inner products of all members, or of their changes, on the CPU."""
    total: Tensor | None = None
    for part in slab.stretches(together=True):
        each = part.deltas() if changes else part.members()
        stack = torch.stack([values.reshape(-1) for values in each]).double()
        total = stack @ stack.T if total is None else total.addmm_(stack, stack.T)
    return torch.zeros(slab.count, slab.count).double() if total is None else total.cpu()


def span_sum(slab: Slab, factors: list[float]) -> Tensor:
    """The members, or what they changed of a base where there is one, each times its factor.

    One member alone comes back as it is, although a change that is added again would round.
    """
    taken = [index for index, factor in enumerate(factors) if factor]
    if len(taken) == 1 and factors[taken[0]] == 1:
        return slab.member(taken[0])
    each = slab.deltas() if slab.based else slab.members()
    total = next(each) * factors[0]
    for values, factor in zip(each, factors[1:], strict=True):
        total += values * factor
    return total.add_(slab.base) if slab.based else total
