"""Task arithmetic: add what the members changed to the base (Ilharco et al., arXiv:2212.04089).

A negative scale or weight forgets a task (negation); several members add tasks (addition).
"""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, TensorFuser
from stockpot.fuse.parameters import normalized


@fusers.register(
    "task_arithmetic",
    paper="arXiv:2212.04089",
    needs_base=True,
    linear=True,
    symmetric=True,
    presets={"fusionbench": {"scale": 0.3}, "mergekit": {"scale": 1.0, "normalize": False}},
)
def task_arithmetic(
    *, scale: float = 0.3, weights: list[float] | None = None, normalize: bool = False
) -> TensorFuser:
    """Add the members' changes to the base.

    theta = theta_0 + scale * sum_t w_t (theta_t - theta_0). Negative numbers subtract: a negative
    scale makes the model forget, a negative weight takes one task out.

    Args:
        scale: multiplies the summed change before it is added to the base.
        weights: one number per member; all 1 by default.
        normalize: divide the weights by their sum.
    """
    factors = normalized(weights, normalize)

    def merge(slab: Slab) -> Tensor:
        base = slab.base
        total = slab.delta(0)
        if factors is not None:
            total *= factors[0]
        change = torch.empty_like(total)
        for index in range(1, slab.count):
            torch.sub(slab.member(index), base, out=change)
            if factors is not None:
                change *= factors[index]
            total += change
        return total.mul_(scale).add_(base)

    return TensorFuser(merge, elementwise=True)
