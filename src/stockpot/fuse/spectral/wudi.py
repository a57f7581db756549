"""WUDI-Merging: keep interference out of each task's subspace (Cheng et al., 2503.08099)."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, TensorFuser
from stockpot.fuse.room import of_matrices
from stockpot.fuse.spectral.adam import descend
from stockpot.fuse.spectral.iso_c import total_change
from stockpot.types import Natural, Positive


@fusers.register("wudi", paper="arXiv:2503.08099", needs_base=True, heavy=True, symmetric=True)
def wudi(*, steps: Natural = 300, lr: Positive = 1e-5, scale: float = 1.0) -> TensorFuser:
    """Find, for every matrix, the change that disturbs each member's own change least.

    Minimises sum_t ||(tau - tau_t) tau_t'||^2 / ||tau_t||^2 with Adam from the summed change.
    Tensors that are not matrices get the mean change.

    Args:
        steps: steps of Adam; FusionBench's configuration takes 400.
        lr: the learning rate.
        scale: multiplies the merged change before it is added to the base.
    """

    def merge(slab: Slab) -> Tensor:
        total = total_change(slab)
        if slab.base.ndim != 2:
            return slab.base + (total / slab.count) * scale
        return slab.base + descend(total, _gradient(slab), lr=lr, steps=steps) * scale

    return TensorFuser(merge, one_by_one=True, room=of_matrices(12, columns=3))


def _gradient(slab: Slab) -> _Slope:
    # The slope is 2 (tau G - sum_t tau_t G_t) with G_t = tau_t' tau_t / ||tau_t||^2: both sums are
    # the same at every step, so a step costs one product instead of two for every member.
    columns = slab.base.shape[1]
    gram = slab.base.new_zeros(columns, columns)
    target = torch.zeros_like(slab.base)
    for delta in slab.deltas():
        energy = delta.square().sum()
        if energy > 0:
            own = (delta.T @ delta) / energy
            gram += own
            target += delta @ own
    return _Slope(gram, target)


class _Slope:
    def __init__(self, gram: Tensor, target: Tensor) -> None:
        self._gram = gram
        self._target = target

    def __call__(self, point: Tensor) -> Tensor:
        return (point @ self._gram).sub_(self._target).mul_(2)
