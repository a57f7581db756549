"""TIES-Merging: trim small changes, elect a sign, merge what agrees (Yadav et al., 2306.01708).

With `scope="model"` each member keeps the changes whose magnitude reaches that of its k-th
smallest, k = d - int(density * d) over all d weights, and a weight whose trimmed changes cancel
exactly takes the sign that prevails in the whole model. With `scope="tensor"` each tensor keeps
exactly int(density * n) changes (at least one) and a cancelled weight counts as positive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, StagedFuser, Stages, TensorFuser
from stockpot.fuse.parameters import one_each
from stockpot.fuse.sparse.combine import Reduce, SignSum, disjoint
from stockpot.fuse.sparse.select import (
    TABLE,
    Magnitudes,
    Measured,
    just_below,
    keep_largest,
    order_statistics,
    trim,
)

Scope = Literal["model", "tensor"]


@fusers.register(
    "ties",
    paper="arXiv:2306.01708",
    needs_base=True,
    symmetric=True,
    presets={
        "paper": {"density": 0.2, "scale": 1.0, "reduce": "mean", "scope": "model"},
        "fusionbench": {"density": 0.2, "scale": 0.3, "reduce": "sum", "scope": "model"},
        "mergekit": {"density": 1.0, "scale": 1.0, "reduce": "mean", "scope": "tensor"},
    },
)
def ties(
    *,
    density: float = 0.2,
    scale: float = 0.3,
    reduce: Reduce = "mean",
    scope: Scope = "model",
    weights: list[float] | None = None,
    densities: list[float] | None = None,
) -> StagedFuser | TensorFuser:
    """Trim small changes, elect a sign, merge what agrees.

    The defaults: density 0.2 and one threshold per model as in the paper and in FusionBench, the
    mean of what agrees as in the paper (FusionBench: the sum), scale 0.3 as in FusionBench (the
    paper without validation data, and mergekit: 1).

    Args:
        density: the share of each member's changes that is kept, the largest first.
        scale: multiplies the merged change before it is added to the base.
        reduce: how agreeing changes combine: their mean (the paper), their sum, or the largest.
        scope: trim over the whole model (the paper) or in each tensor.
        weights: one number per member, multiplied in before signs are elected; all 1 by default.
        densities: one density per member, instead of one for all.
    """
    share = one_each("density", densities, density)
    if scope == "tensor":

        def merge(slab: Slab) -> Tensor:
            trimmed = (keep_largest(d, share(member)) for member, d in enumerate(slab.deltas()))
            return disjoint(trimmed, weights, reduce, majority=1.0).mul_(scale).add_(slab.base)

        return TensorFuser(merge, one_by_one=True)
    return StagedFuser(
        lambda: global_ties(PlainChanges(), densities or density, scale, reduce, weights),
        passes=3,
        counts=TABLE * len(densities or [density]),
    )


@dataclass(frozen=True)
class PlainChanges:
    """Every member's change, as it is."""

    def __call__(self, slab: Slab) -> Iterator[Tensor]:
        return slab.deltas()


@dataclass(frozen=True)
class _Sizes:
    changes: Measured

    def __call__(self, slab: Slab) -> Iterator[Tensor]:
        return (change.abs() for change in self.changes(slab))


def global_ties(
    changes: Measured,
    density: float | Sequence[float],
    scale: float,
    reduce: Reduce,
    weights: Sequence[float] | None,
    *,
    back: Callable[[Slab, Tensor], Tensor] | None = None,
) -> Stages:
    """The stages of TIES with one threshold per model, over any kind of change.

    A sequence of densities has one for each member. Changes that are not of the weights themselves
    are seen whole, and `back` makes the fused tensor of what they merge to.
    """
    sizes = Magnitudes() if isinstance(changes, PlainChanges) else _Sizes(changes)
    shares = [density] if isinstance(density, float | int) else list(density)
    found = yield from order_statistics(
        sizes,
        lambda total: [total - int(total * share) for share in shares],
        elementwise=back is None,
    )
    # Every member's magnitudes at the ranks of all; its own counts.
    own = (row[min(member, len(row) - 1)] for member, row in enumerate(found))
    limits = tuple(just_below(threshold) for threshold in own)
    factors = None if weights is None else tuple(weights)
    majority = yield SignSum(changes, limits, factors, elementwise=back is None)

    def merge(slab: Slab) -> Tensor:
        pairs = zip(changes(slab), limits, strict=True)
        trimmed = (trim(change, limit) for change, limit in pairs)
        merged = disjoint(trimmed, weights, reduce, majority).mul_(scale)
        return merged.add_(slab.base) if back is None else back(slab, merged)

    return TensorFuser(merge, elementwise=back is None)
