"""One basis for the changes of all members: the left singular vectors of [D_1 ... D_T].

They are the eigenvectors of sum_t D_t D_t', so that members are read one after the other. Where all
members are LoRAs over the base, D_t = B_t A_t, nothing of the matrix' size is made: with
[B_1 ... B_T] = Q R and A_t' = P_t L_t', they are Q times those of R diag(L_1, ..., L_T), whose
sides are the sum of the ranks.

A decomposition may turn vectors of equal singular values, and give each either sign. What is done
number by number in the basis would follow, so each such space gets the basis that its projection
determines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from stockpot.fuse.fuser import Slab
from stockpot.fuse.spectral.decompose import tied

_NEAR = 1 - 1e-6
"""The first of several nearly largest lengths is taken, so that rounding does not choose."""


@dataclass(frozen=True)
class SharedBasis:
    """The basis of one matrix, and where the members lie in it."""

    vectors: Tensor
    """Orthonormal columns, in fp64; none where nothing changes."""
    slab: Slab
    factors: tuple[tuple[Tensor, Tensor], ...] | None
    """The members' changes as factors, where all have them."""

    def coordinates(self) -> Iterator[Tensor]:
        """For each member its change in the basis, in fp32 or better."""
        for index in range(self.slab.count):
            if self.factors is None:
                found = self.vectors.T @ self.slab.delta(index).double()
            else:
                up, down = self.factors[index]
                found = (self.vectors.T @ up) @ down
            yield found.to(self.slab.base.dtype)

    def back(self, coordinates: Tensor) -> Tensor:
        """A change of the matrix' shape."""
        return (self.vectors @ coordinates.double()).to(coordinates.dtype)


def shared_basis(slab: Slab, tolerance: float) -> SharedBasis:
    """The directions above rounding of all members' changes to a matrix."""
    factors = slab.all_factors()
    left, values = _from_changes(slab) if factors is None else _from_factors(factors)
    floor = tolerance * torch.linalg.vector_norm(values)
    size = int((values > floor).sum())
    vectors = _canonical(left[:, :size], values[:size], floor)
    return SharedBasis(vectors, slab, factors)


def _from_changes(slab: Slab) -> tuple[Tensor, Tensor]:
    rows = slab.info.shape[0]
    gram = torch.zeros(rows, rows, dtype=torch.float64, device=slab.base.device)
    for delta in slab.deltas():
        double = delta.double()
        gram += double @ double.T
    squares, vectors = torch.linalg.eigh(gram)
    return vectors.flip(1), squares.clamp(min=0).sqrt().flip(0)


def _from_factors(factors: tuple[tuple[Tensor, Tensor], ...]) -> tuple[Tensor, Tensor]:
    ups, downs = zip(*factors, strict=True)
    outer, inner = torch.linalg.qr(torch.cat(ups, dim=1))
    # Block by block what R diag(L_1, ..., L_T) is.
    blocks = inner.split([up.shape[1] for up in ups], dim=1)
    sides = [block @ torch.linalg.qr(down.T).R.T for block, down in zip(blocks, downs, strict=True)]
    left, values, _ = torch.linalg.svd(torch.cat(sides, dim=1), full_matrices=False)
    return outer @ left, values


def _canonical(left: Tensor, values: Tensor, floor: Tensor) -> Tensor:
    """The same spaces, each with a basis that is a function of the space."""
    if not len(values):
        return left
    sizes = left.abs()
    axes = _first_largest(sizes)
    found = left * left.gather(0, axes[None]).sign()
    counts = torch.bincount(tied(values, floor))
    start = 0
    for count in counts.tolist():
        if count > 1:
            place = slice(start, start + count)
            found[:, place] = _of_projection(left[:, place])
        start += count
    return found


def _of_projection(space: Tensor) -> Tensor:
    """One axis after the other, projected into the space: the longest first."""
    rest = space @ space.T
    vectors = []
    for _ in range(space.shape[1]):
        axis = int(_first_largest(rest.square().sum(0)[:, None]))
        vector = rest[:, axis] / rest[:, axis].norm()
        vectors.append(vector)
        rest = rest - vector[:, None] * (vector @ rest)
    return torch.stack(vectors, dim=1)


def _first_largest(sizes: Tensor) -> Tensor:
    """For each column the first row that is the largest, or as large up to rounding."""
    return (sizes >= _NEAR * sizes.amax(0)).int().argmax(0)
