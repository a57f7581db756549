"""Spherical interpolation of two models, tensor by tensor (Shoemake, 1985)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, TensorFuser

_TINY = 1e-8


@fusers.register("slerp", paper="doi:10.1145/325165.325242", pair=True, members=2)
def slerp(*, t: float = 0.5, parallel: float = 0.9995) -> TensorFuser:
    """Interpolate between two models along the arc between their directions.

    With phi the angle between the flattened tensors, theta = sin((1-t) phi)/sin(phi) theta_1 +
    sin(t phi)/sin(phi) theta_2. The lengths of the tensors are kept in the sum.

    Args:
        t: the share of the second model.
        parallel: cosine beyond which two tensors count as parallel and are interpolated linearly.
    """

    def merge(slab: Slab) -> Tensor:
        first, second = slab.members()
        cosine = cosine_between(first, second)
        angle = math.acos(cosine)
        if abs(cosine) > parallel or math.sin(angle) < _TINY:
            return (1 - t) * first + t * second
        return (math.sin((1 - t) * angle) / math.sin(angle)) * first + (
            math.sin(t * angle) / math.sin(angle)
        ) * second

    return TensorFuser(merge, keeps_equal=True)


def cosine_between(first: Tensor, second: Tensor) -> float:
    """The cosine of the angle between two tensors, each divided by its length if it has one."""
    lengths = length(first), length(second)
    product = float((first * second).sum(dtype=torch.float64))
    for size in lengths:
        product /= size if size > _TINY else 1.0
    return max(-1.0, min(1.0, product))


def length(values: Tensor) -> float:
    """The Euclidean norm of a tensor, in fp64."""
    return float(torch.linalg.vector_norm(values, dtype=torch.float64))
