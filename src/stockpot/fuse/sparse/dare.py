"""DARE: drop changes at random and rescale the rest (Yu et al., arXiv:2311.03099)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from stockpot.errors import BadParameterError
from stockpot.fuse import fusers
from stockpot.fuse.fuser import Fuser, Slab, StagedFuser, TensorFuser
from stockpot.fuse.parameters import check_positive, check_share
from stockpot.fuse.sparse.chance import uniform
from stockpot.fuse.sparse.combine import Reduce, add_up, disjoint, weighed
from stockpot.fuse.sparse.select import TABLE, match_l1
from stockpot.fuse.sparse.ties import global_ties
from stockpot.types import Fraction01, Seed

Rescale = Literal["inverse", "l1", "none"]
Merge = Literal["sum", "mean", "ties", "elect"]


@fusers.register(
    "dare",
    paper="arXiv:2311.03099",
    needs_base=True,
    edition=2,  # other draws for a seed
    presets={
        "fusionbench": {"density": 0.5, "scale": 0.3, "merge": "sum", "rescale": "inverse"},
        "fusionbench_ties": {
            "density": 0.5, "scale": 0.5, "merge": "ties", "rescale": "inverse", "keep": 0.2,
            "reduce": "sum",
        },
        "mergekit": {"density": 1.0, "scale": 1.0, "merge": "sum", "rescale": "l1"},
        "mergekit_ties": {
            "density": 1.0, "scale": 1.0, "merge": "elect", "rescale": "l1", "reduce": "sum",
        },
    },
)  # fmt: skip
def dare(
    *,
    density: float = 0.5,
    scale: float = 0.3,
    merge: Merge = "sum",
    rescale: Rescale = "inverse",
    keep: Fraction01 = 0.2,
    reduce: Reduce = "sum",
    weights: list[float] | None = None,
    densities: list[float] | None = None,
    seed: Seed = 0,
) -> Fuser:
    """Drop changes at random, rescale the rest, then merge them.

    Each change survives with probability `density` and is divided by it, which keeps its
    expectation. The defaults are FusionBench's for DARE with task arithmetic.

    Args:
        density: the share of the changes that is kept (1 - p of the paper).
        scale: multiplies the merged change before it is added to the base.
        merge: how the members combine: sum (task arithmetic), mean, ties (with one threshold per
            model), or elect (agreeing signs only, nothing trimmed: mergekit's dare_ties).
        rescale: divide by the density (the paper), match the sum of magnitudes of each tensor
            (mergekit), or leave the survivors as they are.
        keep: for merge=ties, the share kept by TIES.
        reduce: for merge=ties or elect, how agreeing changes combine.
        weights: one number per member; all 1 by default.
        densities: one density per member, instead of one for all.
        seed: the survivors depend on it, the member's place and the tensor's name.
    """
    for share in densities or [density]:
        check_share("density", share)
        check_positive("density", share)
    changes = Dropped(tuple(densities or ()) or density, rescale, seed)
    if merge == "ties":
        if rescale == "l1":
            raise BadParameterError(
                "rescale: l1 goes with merge=sum, mean or elect, not with ties."
            )
        return StagedFuser(
            lambda: global_ties(changes, keep, scale, reduce, weights), passes=3, counts=TABLE
        )

    def fuse(slab: Slab) -> Tensor:
        kept = changes(slab)
        if merge == "elect":
            total = disjoint(kept, weights, reduce, majority=1.0)
        else:
            total = add_up(weighed(kept, weights))
            if merge == "mean":
                total /= slab.count
        return total.mul_(scale).add_(slab.base)

    return TensorFuser(fuse, elementwise=rescale != "l1", one_by_one=True)


@dataclass(frozen=True)
class Dropped:
    """Every member's change with a random part of it set to zero."""

    density: float | tuple[float, ...]
    """One for all members, or one for each."""
    rescale: Rescale
    seed: int

    def __call__(self, slab: Slab) -> Iterator[Tensor]:
        for member in range(slab.count):
            change = slab.delta(member)
            density = self.density[member] if isinstance(self.density, tuple) else self.density
            chance = uniform(
                slab, change.numel(), seed=self.seed, member=member, device=change.device
            )
            mask = (chance < density).view_as(change)
            part = change * mask
            if self.rescale == "inverse":
                part /= density
            elif self.rescale == "l1":
                part = match_l1(change, part)
            yield part
