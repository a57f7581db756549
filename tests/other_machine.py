"""Decompositions as another machine might return them.

Singular vectors and eigenvectors are unique only up to a basis of each space of equal values, and
those of a zero are any that complete the others. Every answer made here is as right as torch's own:
values that cannot be told apart in their precision share a space, whose basis is drawn anew.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Generator, Tensor


def on_another_machine(monkeypatch: pytest.MonkeyPatch, seed: int = 0) -> None:
    """Let torch's SVD and eigh answer with other vectors for the same matrix."""
    svd, eigh = torch.linalg.svd, torch.linalg.eigh
    generator = Generator().manual_seed(seed)

    def other_svd(matrix: Tensor, full_matrices: bool = True, **options: Any) -> Any:
        assert not full_matrices
        found = svd(matrix, full_matrices=False, **options)
        if matrix.ndim > 2:
            each = [other_svd(part, full_matrices=False) for part in matrix]
            stacked = [torch.stack(parts) for parts in zip(*each, strict=True)]
            return torch.return_types.linalg_svd(stacked)
        left, values, right = (part.clone() for part in found)
        for space in _spaces(values, matrix):
            if float(values[space.start]) <= _room(values, matrix):
                left[:, space] = _completion(left[:, : space.start], len(values), generator)
                right[space] = _completion(right[: space.start].T, len(values), generator).T
            else:
                turn = _rotation(space.stop - space.start, left, generator)
                left[:, space] = left[:, space] @ turn
                right[space] = turn.T @ right[space]
        return torch.return_types.linalg_svd((left, values, right))

    def other_eigh(matrix: Tensor, *args: Any, **options: Any) -> Any:
        values, vectors = eigh(matrix, *args, **options)
        values, vectors = values.flip(0), vectors.flip(1).clone()
        for space in _spaces(values, matrix):
            turn = _rotation(space.stop - space.start, vectors, generator)
            vectors[:, space] = vectors[:, space] @ turn
        return torch.return_types.linalg_eigh((values.flip(0), vectors.flip(1)))

    monkeypatch.setattr(torch.linalg, "svd", other_svd)
    monkeypatch.setattr(torch.linalg, "eigh", other_eigh)


def _room(values: Tensor, matrix: Tensor) -> float:
    """How far apart two values may be that a backward stable method cannot tell apart."""
    eps = torch.finfo(matrix.dtype).eps
    return float(values.abs().max()) * eps * max(matrix.shape) ** 0.5


def _spaces(values: Tensor, matrix: Tensor) -> list[slice]:
    """Runs of values, in descending order, that cannot be told apart."""
    room = _room(values, matrix)
    ends = [0]
    for index in range(1, len(values)):
        if float(values[index - 1] - values[index]) > room:
            ends.append(index)
    return [slice(a, b) for a, b in zip(ends, [*ends[1:], len(values)], strict=True)]


def _rotation(size: int, like: Tensor, generator: Generator) -> Tensor:
    """A random orthogonal matrix; for one vector, a sign."""
    drawn = torch.randn(size, size, generator=generator, dtype=torch.float64)
    factor, upper = torch.linalg.qr(drawn)
    return (factor * upper.diagonal().sign()).to(like)


def _completion(known: Tensor, count: int, generator: Generator) -> Tensor:
    """Orthonormal columns that complete `known` to `count`."""
    missing = count - known.shape[1]
    drawn = torch.randn(len(known), missing, generator=generator, dtype=torch.float64)
    whole = torch.cat([known.double(), drawn.to(known.device)], dim=1)
    return torch.linalg.qr(whole)[0][:, known.shape[1] :].to(known)
