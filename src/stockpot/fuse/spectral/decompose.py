"""Singular vectors, fast where that is safe.

The singular vectors of a large matrix come from the eigenvectors of its smaller Gram matrix in
fp64, which is two to four times faster than an SVD and, down to singular values of about 1e-4 of
the largest, at least as accurate as one in fp32. Small or nearly singular matrices get the SVD.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_SMALL = 256
"""Sides up to this are left to the SVD, which is cheap there."""
_SINGULAR = 1e-4
"""A smaller ratio of the wanted singular values to the largest is left to the SVD."""


class Triples(NamedTuple):
    """Left vectors as columns, singular values, right vectors as rows; largest first."""

    left: Tensor
    values: Tensor
    right: Tensor


def leading_triples(matrix: Tensor, count: int) -> Triples:
    """The `count` largest singular triples of a matrix."""
    if min(matrix.shape) <= _SMALL:
        return _exact(matrix, count)
    vectors, squares, wide = _gram(matrix)
    vectors = vectors[:, -count:].flip(1) if count else vectors[:, :0]
    values = squares[-count:].flip(0).sqrt() if count else squares[:0]
    if count and values[-1] < _SINGULAR * values[0]:
        return _exact(matrix, count)
    double = matrix.double()
    if wide:
        left, right = vectors, (vectors.T @ double) / values[:, None]
    else:
        left, right = (double @ vectors) / values, vectors.T
    return Triples(left.to(matrix.dtype), values.to(matrix.dtype), right.to(matrix.dtype))


def orthogonal_factor(matrix: Tensor) -> Tensor:
    """The nearest matrix with orthonormal rows or columns: U V of the SVD."""
    return isotropic(matrix)[0]


def isotropic(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The orthogonal factor of a matrix, and the mean of its singular values."""
    if min(matrix.shape) > _SMALL:
        vectors, squares, wide = _gram(matrix)
        values = squares.sqrt()
        if values[0] >= _SINGULAR * values[-1]:
            root = (vectors / values) @ vectors.T
            factor = root @ matrix.double() if wide else matrix.double() @ root
            return factor.to(matrix.dtype), values.mean().to(matrix.dtype)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    return left @ right, values.mean()


def _exact(matrix: Tensor, count: int) -> Triples:
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    return Triples(left[:, :count], values[:count], right[:count])


def _gram(matrix: Tensor) -> tuple[Tensor, Tensor, bool]:
    """Eigenvectors and eigenvalues, ascending, of the smaller Gram matrix; whether it is A A'."""
    double = matrix.double()
    wide = matrix.shape[0] <= matrix.shape[1]
    squares, vectors = torch.linalg.eigh(double @ double.T if wide else double.T @ double)
    return vectors, squares.clamp(min=0), wide
