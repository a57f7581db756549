"""OPCM: keep what arrives off the directions already in use (Tang et al., arXiv:2501.09522)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.continual.names import EMBEDDINGS, is_matrix
from stockpot.fuse.fuser import Slab, StagedFuser, Stages, TensorFuser
from stockpot.fuse.room import of_matrices
from stockpot.fuse.spectral.decompose import (
    RANK_TOLERANCE,
    check_tolerance,
    leading_triples,
    rounding_floor,
    tied,
)
from stockpot.types import Fraction01, NonNegative


@fusers.register("opcm", paper="arXiv:2501.09522", needs_base=True, heavy=True)
def opcm(
    *,
    alpha: Fraction01 = 0.5,
    scale: float = 1.0,
    skip: str = EMBEDDINGS,
    rank_tolerance: NonNegative = RANK_TOLERANCE,
) -> StagedFuser:
    """Add members one after the other, each off the directions that the earlier ones use.

    Written in the singular vectors of the change merged so far, what a member adds to a matrix
    loses its diagonal and the block of the leading directions; other tensors are added up. In the
    end the whole change is given the mean length of the members' own. The order of the members
    matters; each is read once, one at a time, and one merged change is held in memory.

    Args:
        alpha: the share of the singular values that the leading directions hold.
        scale: multiplies the merged change before it is added to the base.
        skip: globs of the names of matrices that are added up like other tensors, by commas.
        rank_tolerance: singular values up to this share of a change's Frobenius norm count as
            rounding: there are no directions to keep off; 0 keeps all.
    """
    check_tolerance(rank_tolerance)
    sequence = _Sequence(alpha, skip, rank_tolerance)

    def stages() -> Stages:
        found: _Found = yield sequence

        def merge(slab: Slab) -> Tensor:
            if slab.count == 1 and scale == 1:
                return slab.member(0)
            total = found.matrices.get(slab.name)
            if total is None:
                total = sequence.merged(slab)[0]
            return slab.base + total * (scale * found.factor)

        return TensorFuser(merge)

    room = of_matrices(12, member=0.6, gram=8, merged=partial(is_matrix, skip=skip))
    return StagedFuser(stages, passes=1, holds=1, whole=True, one_by_one=True, room=room)


class _Found(NamedTuple):
    """The merged changes of matrices, and what brings the whole change to its length."""

    matrices: dict[str, Tensor]
    factor: float


class _Part(NamedTuple):
    """Of one tensor: squared lengths of the members' changes and of the merged one, which is kept
    where it was dear to find."""

    squares: list[float]
    merged: float
    matrix: Tensor | None


@dataclass(frozen=True)
class _Sequence:
    """A look at all tensors that merges them, up to the length of the whole."""

    alpha: float
    skip: str
    tolerance: float
    elementwise: bool = False

    def merged(self, slab: Slab) -> tuple[Tensor, list[float]]:
        """The merged change of a tensor, and the squared length of each member's."""
        matrix = is_matrix(slab.name, slab.info.shape, self.skip)
        total: Tensor | None = None
        squares = []
        for delta in slab.deltas():
            delta = delta.double()
            squares.append(float(delta.square().sum()))
            if total is None:
                total = delta
            else:
                total = total + (self._beside(total, delta) if matrix else delta)
        if total is None:
            raise LookupError("no members")
        return total.to(slab.base.dtype), squares

    def _beside(self, total: Tensor, delta: Tensor) -> Tensor:
        """What a change adds outside of the directions that the total uses."""
        left, values, right = leading_triples(total, rounding_floor(total, self.tolerance))
        if not len(values):
            return delta
        spaces = tied(values)
        leading = int((values.cumsum(0) <= self.alpha * values.sum()).sum())
        if self.alpha >= 1:
            leading = len(values)
        if leading:  # equal values are all in the block, or none is
            leading = int((spaces <= spaces[leading - 1]).sum())
        # Vectors of equal values are any basis of their space, so that all of it is their diagonal.
        taken = spaces[:, None] == spaces
        taken[:leading, :leading] = True
        return delta - left @ ((left.T @ delta @ right.T) * taken) @ right

    def begin(self, count: int) -> dict[str, _Part]:
        return {}

    def observe(self, seen: dict[str, _Part], slab: Slab) -> None:
        total, squares = self.merged(slab)
        kept = total if is_matrix(slab.name, slab.info.shape, self.skip) else None
        seen[slab.name] = _Part(squares, float(total.double().square().sum()), kept)

    def finish(self, parts: Sequence[dict[str, _Part]]) -> _Found:
        every = {name: part for found in parts for name, part in found.items()}
        ordered = [every[name] for name in sorted(every)]  # whoever saw them
        squares = torch.tensor([part.squares for part in ordered], dtype=torch.float64)
        mean = float(squares.sum(dim=0).sqrt().mean())
        length = sum(part.merged for part in ordered) ** 0.5
        matrices = {name: part.matrix for name, part in every.items() if part.matrix is not None}
        return _Found(matrices, mean / length if length > 0 else 0.0)
