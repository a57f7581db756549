"""KnOTS: merge LoRAs in a basis that they share (Stoica et al., arXiv:2410.19735)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from stockpot.errors import BadParameterError
from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, StagedFuser
from stockpot.fuse.parameters import check_share
from stockpot.fuse.room import of_matrices
from stockpot.fuse.sparse.chance import uniform
from stockpot.fuse.sparse.combine import Reduce
from stockpot.fuse.sparse.select import TABLE
from stockpot.fuse.sparse.ties import global_ties
from stockpot.fuse.spectral.decompose import RANK_TOLERANCE, check_tolerance
from stockpot.fuse.spectral.shared_basis import shared_basis
from stockpot.fuse.spectral.tsv_m import running_mean
from stockpot.types import NonNegative, Seed


@fusers.register(
    "knots",
    paper="arXiv:2410.19735",
    needs_base=True,
    heavy=True,
    presets={
        "ties": {"density": 0.2, "drop": 0.0, "scale": 0.6},
        "dare_ties": {"density": 1.0, "drop": 0.1, "scale": 0.7},
    },
)
def knots(
    *,
    density: float = 0.2,
    scale: float = 0.6,
    drop: float = 0.0,
    reduce: Reduce = "mean",
    weights: list[float] | None = None,
    rank_tolerance: NonNegative = RANK_TOLERANCE,
    seed: Seed = 0,
) -> StagedFuser:
    """Turn the members' changes into one common basis, and merge them there as TIES does.

    The basis of a matrix are the left singular vectors of all members' changes side by side, which
    makes LoRAs comparable that learned the same in other coordinates. Trimming, signs and means are
    those of TIES with one threshold per model, over the coordinates of all matrices; the result is
    turned back. Members that are LoRAs over the base stay factors: no matrix of the base's size is
    decomposed. Tensors that are not matrices get the mean change.

    Args:
        density: the share of each member's coordinates that is kept, the largest first.
        scale: multiplies the merged change before it is added to the base.
        drop: the share of the coordinates that is dropped at random before, as DARE does; the rest
            is divided by what is left.
        reduce: how agreeing coordinates combine: their mean (the authors), their sum, or the
            largest.
        weights: one number per member, multiplied in before signs are elected; all 1 by default.
        rank_tolerance: directions up to this share of the length of all changes count as rounding
            and are left out.
        seed: of what is dropped.
    """
    check_share("density", density)
    check_tolerance(rank_tolerance)
    if not 0 <= drop < 1:
        raise BadParameterError(f"drop: expected 0 <= drop < 1, got {drop}.", parameter="drop")

    def back(slab: Slab, merged: Tensor) -> Tensor:
        if slab.base.ndim != 2:
            return slab.base + running_mean(slab, weights) * scale
        return slab.base + shared_basis(slab, rank_tolerance).back(merged) * scale

    coordinates = Coordinates(rank_tolerance, drop, seed)
    return StagedFuser(
        lambda: global_ties(coordinates, density, 1.0, reduce, weights, back=back),
        passes=3,
        counts=TABLE,
        whole=True,
        room=of_matrices(18, member=1.5, gram=15),
    )


@dataclass(frozen=True)
class Coordinates:
    """Every member's change in the common basis, or nothing where it is no matrix."""

    tolerance: float
    drop: float
    seed: int

    def __call__(self, slab: Slab) -> Iterator[Tensor]:
        if slab.base.ndim != 2:
            yield from [slab.base.new_empty(0)] * slab.count
            return
        for member, found in enumerate(shared_basis(slab, self.tolerance).coordinates()):
            yield self._dropped(slab, member, found) if self.drop else found

    def _dropped(self, slab: Slab, member: int, found: Tensor) -> Tensor:
        chance = uniform(
            slab, found.numel(), seed=self.seed, member=member, device=found.device
        ).view_as(found)
        return torch.where(chance < self.drop, 0.0, found / (1 - self.drop))
