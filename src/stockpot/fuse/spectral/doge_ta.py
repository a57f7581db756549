"""DOGE-TA: a shared change learned off the tasks' subspace (Wei et al., arXiv:2501.01230)."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from stockpot.errors import BadParameterError
from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, StagedFuser, Stages, TensorFuser
from stockpot.fuse.parameters import check_share
from stockpot.fuse.room import of_matrices
from stockpot.fuse.sparse.select import TABLE, order_statistics
from stockpot.fuse.spectral.adam import descend
from stockpot.fuse.spectral.decompose import (
    RANK_TOLERANCE,
    check_tolerance,
    leading_triples,
    rounding_floor,
)
from stockpot.types import Count, Natural, NonNegative, Positive


@fusers.register("doge_ta", paper="arXiv:2501.01230", needs_base=True, heavy=True)
def doge_ta(
    *,
    density: float = 0.3,
    scale: float = 0.07,
    subspace: Count = 6,
    steps: Natural = 400,
    lr: Positive = 1e-4,
    targets: str = "*encoder*weight,*blocks.*weight",
    skip: str = "*norm*",
    rank_tolerance: NonNegative = RANK_TOLERANCE,
) -> StagedFuser:
    """Task arithmetic with a learned shared change and a scale for every layer.

    A change shared by all members is learned by Adam, its gradient projected off the leading r /
    subspace left singular vectors of the members' changes. Each member's change plus the shared one
    is kept where its own is among the largest of the model, and weighs scale / ||tau_t|| in its
    layer. Tensors that are not matching matrices keep the base's values.

    Args:
        density: the share of each member's changes that is kept, over all matching matrices.
        scale: the length that each member's change to a matrix is given.
        subspace: the rank of a matrix divided by this is the rank of the protected subspace.
        steps: steps of Adam.
        lr: the learning rate.
        targets: globs of the names of the matrices that are merged, such as those of the blocks
            of a transformer in transformers (`encoder`), timm and open_clip (`blocks`).
        skip: globs of names that are not.
        rank_tolerance: singular values up to this share of a change's Frobenius norm count as
            rounding and are left out; 0 keeps all, as FusionBench does.
    """
    check_share("density", density)
    check_tolerance(rank_tolerance)

    wanted = _Wanted(tuple(targets.split(",")), tuple(skip.split(",")))

    def limit_ranks(total: int) -> list[int]:
        if not total:
            raise BadParameterError(
                f"doge_ta: no matrix of the models is called {targets} (targets) and not {skip}.",
                hint="Give targets= the names of its matrices as globs, such as '*layers*weight'.",
            )
        return [max(1, total - int(total * density))]

    def stages() -> Stages:
        found = yield from order_statistics(_TargetSizes(wanted), limit_ranks)

        def merge(slab: Slab) -> Tensor:
            if not wanted(slab):
                return slab.base
            deltas = slab.stacked_deltas()
            lengths = torch.linalg.vector_norm(deltas.flatten(1), dim=1)
            factors = torch.where(lengths > 0, scale / lengths, 0.0)
            guarded = _guarded(deltas, subspace, rank_tolerance)
            shared = _shared(deltas, factors, guarded, steps, lr)
            merged = torch.zeros_like(slab.base)
            for delta, factor, (limit,) in zip(deltas, factors, found, strict=True):
                merged += (delta + shared) * (delta.abs() >= limit) * factor
            return slab.base + merged

        return TensorFuser(merge)

    room = of_matrices(34, member=4, gram=4, merged=wanted.merges)
    return StagedFuser(stages, passes=2, counts=TABLE, whole=True, room=room)


@dataclass(frozen=True)
class _Wanted:
    """Which tensors are merged: matrices of these names."""

    targets: tuple[str, ...]
    skip: tuple[str, ...]

    def __call__(self, slab: Slab) -> bool:
        return self.merges(slab.name, slab.info.shape)

    def merges(self, name: str, shape: tuple[int, ...]) -> bool:
        named = any(fnmatchcase(name, glob.strip()) for glob in self.targets)
        skipped = any(fnmatchcase(name, glob.strip()) for glob in self.skip)
        return len(shape) == 2 and named and not skipped


@dataclass(frozen=True)
class _TargetSizes:
    """The magnitudes of the changes to matching matrices; nothing for other tensors."""

    wanted: _Wanted

    def __call__(self, slab: Slab) -> list[Tensor]:
        if not self.wanted(slab):
            return [torch.empty(0)] * slab.count
        return [delta.abs_() for delta in slab.deltas()]


def _guarded(deltas: Tensor, subspace: int, tolerance: float) -> Tensor:
    """Columns that span what the members share most; equal directions are all in it."""
    count, rows, columns = deltas.shape
    rank = min(rows, columns)
    left = torch.cat(
        [
            leading_triples(delta, rounding_floor(delta, tolerance), int(rank / count)).left
            for delta in deltas
        ],
        dim=1,
    )
    return leading_triples(left, rounding_floor(left, tolerance), int(rank / subspace)).left


def _shared(deltas: Tensor, factors: Tensor, guarded: Tensor, steps: int, lr: float) -> Tensor:
    # In fp64: Adam gives every slope the same length, and where all of it is projected off, what is
    # left would be the rounding of fp32.
    rows = deltas.double().transpose(0, 1).contiguous()  # row, member, column
    factors = factors.double()
    weight = factors.sum()
    # The loss of a member is the squared row sums of tau_t * (tau_t - total - weight shared), with
    # total the weighed sum of all changes. Only the last term changes from step to step, so that
    # the slope takes two small products for each row.
    still = (rows * (rows - torch.einsum("t,itj->ij", factors, rows)[:, None])).sum(dim=2)

    def gradient(shared: Tensor) -> Tensor:
        sums = torch.baddbmm(still[..., None], rows, shared[..., None], alpha=-float(weight))
        slope = torch.bmm(sums.transpose(1, 2), rows)[:, 0].mul_(-2 * weight)
        return slope - guarded @ (guarded.T @ slope)

    start = torch.zeros_like(rows[:, 0])
    return descend(start, gradient, lr=lr, steps=steps).to(deltas.dtype)
