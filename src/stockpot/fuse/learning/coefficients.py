"""A fusion that is base + sum of coefficients x changes, one coefficient per member and tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from stockpot.checkpoints.layouts import plain_name
from stockpot.fuse.fuser import Slab, TensorFuser


def coefficient_fuser(names: Sequence[str], coefficients: Tensor) -> TensorFuser:
    """Add every member's change, multiplied by its coefficient for that tensor.

    Where all members have the same coefficient, changes are summed first, as task arithmetic does.

    Args:
        names: the fused tensors.
        coefficients: members x tensors.
    """
    of = {plain_name(name): column for name, column in zip(names, coefficients.T, strict=True)}

    def merge(slab: Slab) -> Tensor:
        factors = of[plain_name(slab.name)].tolist()
        alike = len(set(factors)) == 1
        total = slab.delta(0)
        if not alike:
            total *= factors[0]
        change = torch.empty_like(total)
        for index in range(1, slab.count):
            torch.sub(slab.member(index), slab.base, out=change)
            if not alike:
                change *= factors[index]
            total += change
        return (total.mul_(factors[0]) if alike else total).add_(slab.base)

    return TensorFuser(merge, elementwise=True)


def soup_fuser(names: Sequence[str], weights: Tensor) -> TensorFuser:
    """The weighted sum of the members, weights as members x tensors that sum to 1.

    Args:
        names: the fused tensors.
        weights: members x tensors.
    """
    of = {plain_name(name): column for name, column in zip(names, weights.T, strict=True)}

    def merge(slab: Slab) -> Tensor:
        factors = of[plain_name(slab.name)].tolist()
        kept = [index for index, factor in enumerate(factors) if factor]
        if len({factors[index] for index in kept}) == 1:
            total = slab.member(kept[0]).clone()
            for index in kept[1:]:
                total += slab.member(index)
            return total / len(kept) if len(kept) > 1 else total
        mixed: Tensor = slab.member(kept[0]) * factors[kept[0]]
        for index in kept[1:]:
            mixed += slab.member(index) * factors[index]
        return mixed

    return TensorFuser(merge, elementwise=True, keeps_equal=True)
