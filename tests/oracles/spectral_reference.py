"""The spectral methods by their published formulas, over the range of the changes, in float64.

FusionBench gives directions in which nothing changed the vectors that its SVD happens to return.
Here such directions are left out; where changes have full rank the formulas are FusionBench's own.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
ROUNDING = 1e-5


def triples(matrix: Matrix, count: int | None = None, of: Matrix | None = None) -> list[Matrix]:
    """Singular triples above the rounding of `of` (the matrix itself, if none is given)."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    rank = int((values > ROUNDING * np.linalg.norm(matrix if of is None else of)).sum())
    rank = rank if count is None else min(rank, count)
    return [left[:, :rank], values[:rank], right[:rank]]


def full_rank(matrix: Matrix) -> bool:
    return len(triples(matrix)[1]) == min(matrix.shape)


def isometry(matrix: Matrix) -> Matrix:
    """A (A'A)^(-1/2), the power taken over the range."""
    squares, vectors = np.linalg.eigh(matrix.T @ matrix)
    signal = squares > squares.max(initial=0) * 1e-10
    powers = np.where(signal, squares, 1.0) ** -0.5 * signal
    return matrix @ (vectors * powers) @ vectors.T


def iso_c(changes: list[Matrix]) -> Matrix:
    total = np.sum(changes, axis=0)
    values = triples(total)[1]
    return isometry(total) * (values.mean() if len(values) else 0.0)


def tsv_m(changes: list[Matrix]) -> Matrix:
    share = min(changes[0].shape) // len(changes)
    parts = [triples(change, share) for change in changes]
    left, right = (
        isometry(np.concatenate([part[0] for part in parts], axis=1)),
        isometry(np.concatenate([part[2] for part in parts]).T).T,
    )
    return left * np.concatenate([part[1] for part in parts]) @ right


def iso_cts(changes: list[Matrix], common: float = 0.8) -> Matrix:
    rank, count = min(changes[0].shape), len(changes)
    own = round((rank - int(rank * common)) / count)
    parts = [triples(np.sum(changes, axis=0), rank - own * count)]
    shared = parts[0][0]
    for change in changes:
        parts.append(triples(change - shared @ shared.T @ change, own, of=change))
    values = np.concatenate([part[1] for part in parts])
    left = isometry(np.concatenate([part[0] for part in parts], axis=1))
    right = isometry(np.concatenate([part[2] for part in parts]).T).T
    return left * (values.mean() if len(values) else 0.0) @ right


def doge_ta(
    changes: dict[str, list[Matrix]], density: float = 0.3, scale: float = 0.07
) -> dict[str, Matrix]:
    """Of all merged matrices at once: what is kept is decided over the whole model."""
    merged = {
        name: each
        for name, each in changes.items()
        if each[0].ndim == 2 and fnmatchcase(name, "*encoder*weight") and "norm" not in name
    }
    count = len(next(iter(merged.values())))
    limits = []
    for member in range(count):
        sizes = np.sort(np.abs(np.concatenate([each[member].ravel() for each in merged.values()])))
        limits.append(sizes[len(sizes) - int(len(sizes) * density) - 1])
    result = {}
    for name, each in merged.items():
        lengths = [np.linalg.norm(change) for change in each]
        factors = [scale / length if length else 0.0 for length in lengths]
        shared = _shared(each, factors)
        result[name] = sum(
            (change + shared) * (np.abs(change) >= limit) * factor
            for change, limit, factor in zip(each, limits, factors, strict=True)
        )
    return result


def _shared(changes: list[Matrix], factors: list[float], subspace: int = 6) -> Matrix:
    rank = min(changes[0].shape)
    bases = [triples(change, rank // len(changes))[0] for change in changes]
    guarded = triples(np.concatenate(bases, axis=1), rank // subspace)[0]
    total = sum(f * change for f, change in zip(factors, changes, strict=True))
    weight = sum(factors)
    point = mean = square = np.zeros_like(changes[0])
    for step in range(1, 401):
        slope = np.zeros_like(point)
        for change in changes:
            sums = (change * (change - total - weight * point)).sum(axis=1, keepdims=True)
            slope = slope - 2 * weight * sums * change
        slope = slope - guarded @ (guarded.T @ slope)
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        size = np.sqrt(square / (1 - 0.999**step)) + 1e-8
        point = point - 1e-4 * mean / (1 - 0.9**step) / size
    return point
