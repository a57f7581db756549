"""Networks written in common units: merged where units go out, unmerged where they come in.

For a group of units, `goes` (units x joined units, of all networks one below the other) says where
each goes. A layer that makes the group gets its rows averaged over what was joined, one that reads
it gets a copy of every joined unit for each that went in: W = sum_i M_i W_i U_i. A tensor whose
outputs stay in their places, as those of the head do, is averaged over the networks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from stockpot.fuse.permutation.spec import PermutationSpec

State = Mapping[str, Tensor]


def merged(
    states: Sequence[State], goes: Mapping[str, Tensor], spec: PermutationSpec
) -> dict[str, Tensor]:
    """One network of several, in fp64.

    Args:
        states: the networks' weights by name.
        goes: group -> where its units go.
        spec: which axes of which tensors the groups are; axis 0 is made, axis 1 read.
    """
    count = len(states)
    parts = {group: matrix.double().chunk(count) for group, matrix in goes.items()}
    shares = {group: matrix.double().sum(dim=0) for group, matrix in goes.items()}
    table = spec.groups_of()
    found: dict[str, Tensor] = {}
    for name, first in states[0].items():
        axes = table.get(name, {})
        total = torch.zeros_like(first, dtype=torch.float64)
        for number, state in enumerate(states):
            value = state[name].double()
            if 1 in axes:
                unmerge = parts[axes[1][0]][number].to(value.device)
                value = torch.tensordot(value, unmerge, dims=([1], [0])).movedim(-1, 1)
            if 0 in axes:
                group = axes[0][0]
                merge = (parts[group][number] / shares[group]).T.to(value.device)
                value = torch.tensordot(merge, value, dims=1)
            else:
                value = value / count
            total += value
        found[name] = total
    return found
