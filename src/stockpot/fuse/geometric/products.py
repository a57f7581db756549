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
