"""Singular vectors that are functions of the matrix alone.

A decomposition may return any vectors for a singular value of zero, and any basis of a space whose
singular values are equal: which, depends on the CPU. So directions below a floor, where only the
rounding of weights lives, are no part of a change, and a cut never divides equal values. All work
is in fp64, where what rounding does to directions above the floor is far below an fp32 digit.

The vectors of a large matrix come from the eigenvectors of its smaller Gram matrix, which is two to
four times faster than an SVD and as accurate down to singular values of about 1e-4 of the largest.
Small matrices, and those whose signal reaches further down, get the SVD.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from stockpot.errors import BadParameterError

RANK_TOLERANCE = 1e-5
"""Singular values up to this share of a matrix' Frobenius norm count as rounding.

Weights w that were rounded to fp32 give an n x n difference singular values of about 4e-8 |w| / n,
where |w| is the Frobenius norm: for a change a thousandth as long as the weights that is 5e-6 of
its length at n = 8 and 5e-8 at n = 768. A change of full rank loses next to nothing: the smallest
value of a Gaussian n x n matrix is about 1 / n of its norm, which reaches 1e-5 at n = 100,000.
"""
_SMALL = 256
"""Sides up to this are left to the SVD, which is cheap there."""
_SINGULAR = 1e-4
"""A smaller ratio of the wanted singular values to the largest is left to the SVD."""
_TIE = 1e-6
"""Singular values closer than this share of the largest are equal; a cut keeps or drops both."""


class Triples(NamedTuple):
    """Left vectors as columns, singular values, right vectors as rows; largest first, in fp64."""

    left: Tensor
    values: Tensor
    right: Tensor


def check_tolerance(value: float) -> None:
    """Raise unless a number can be a share of a matrix' length."""
    if not 0 <= value < 1:
        raise BadParameterError(f"rank_tolerance: expected 0 <= rank_tolerance < 1, got {value}.")


def rounding_floor(matrix: Tensor, tolerance: float) -> Tensor:
    """The singular value up to which a matrix, or what is left of it, counts as rounding."""
    length: Tensor = torch.linalg.matrix_norm(matrix.double())
    return tolerance * length


def leading_triples(matrix: Tensor, floor: Tensor, count: int | None = None) -> Triples:
    """The largest singular triples above a floor: all of them, or `count`.

    There are fewer than `count` where fewer lie above the floor, and more where the last is equal
    to those after it.
    """
    double = matrix.double()
    if min(matrix.shape) > _SMALL:
        found = _from_gram(double, floor, count)
        if found is not None:
            return found
    left, values, right = torch.linalg.svd(double, full_matrices=False)
    size = kept(values, floor, count)
    if size < len(values):  # a view of them would hold them all
        left, values, right = left[:, :size].clone(), values[:size], right[:size].clone()
    return Triples(left, values, right)


def orthogonal_factor(matrix: Tensor, tolerance: float) -> Tensor:
    """The nearest partial isometry: U V of the SVD over the numerical range.

    Its rows or columns are orthonormal where the matrix has full rank.
    """
    left, _, right = leading_triples(matrix, rounding_floor(matrix, tolerance))
    return left @ right


def kept(values: Tensor, floor: Tensor, count: int | None) -> int:
    """How many of the descending values are wanted; a tie at the end is kept whole."""
    signal = int((values > floor).sum())
    if count is None or count >= signal or not count:
        return signal if count is None else min(count, signal)
    steps = (values[:-1] - values[1:])[count - 1 : signal - 1] > _TIE * values[0]
    # The first step that is no tie ends the cut.
    return count + (int(steps.int().argmax()) if bool(steps.any()) else len(steps))


def tied(values: Tensor, floor: Tensor | float = 0.0) -> Tensor:
    """For each of the descending values the number of its group.

    Those share a group that are no further apart than rounding, which is as large as the floor, can
    move them.
    """
    least = torch.clamp(_TIE * values[:1], min=floor)
    steps = (values[:-1] - values[1:]) > least
    return torch.cat([steps.new_zeros(min(len(values), 1)), steps]).cumsum(0)


def _from_gram(double: Tensor, floor: Tensor, count: int | None) -> Triples | None:
    """From the eigenvectors of the smaller Gram matrix; None where that is not accurate."""
    wide = double.shape[0] <= double.shape[1]
    squares, vectors = torch.linalg.eigh(double @ double.T if wide else double.T @ double)
    values = squares.clamp(min=0).sqrt().flip(0)
    size = kept(values, floor, count)
    if size and values[size - 1] < _SINGULAR * values[0]:
        return None
    # Cut before it is copied: of what is copied whole, a part would hold the whole.
    values, vectors = values[:size], vectors[:, len(squares) - size :].flip(1)
    if wide:
        return Triples(vectors, values, (vectors.T @ double) / values[:, None])
    return Triples((double @ vectors) / values, values, vectors.T)
