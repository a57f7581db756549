"""Model breadcrumbs: drop the smallest and the largest changes (Davari, arXiv:2312.06795)."""

from __future__ import annotations

from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, TensorFuser
from stockpot.fuse.parameters import one_each
from stockpot.fuse.sparse.combine import Reduce, add_up, disjoint, weighed
from stockpot.fuse.sparse.select import keep_ranks


@fusers.register(
    "breadcrumbs",
    paper="arXiv:2312.06795",
    needs_base=True,
    symmetric=True,
    presets={
        "mergekit": {"density": 1.0, "gamma": 0.01, "scale": 1.0, "elect": False},
        "mergekit_ties": {
            "density": 1.0, "gamma": 0.01, "scale": 1.0, "elect": True, "reduce": "sum",
        },
    },
)  # fmt: skip
def breadcrumbs(
    *,
    density: float = 0.143,
    gamma: float = 0.007,
    scale: float = 0.3,
    elect: bool = False,
    reduce: Reduce = "sum",
    weights: list[float] | None = None,
    densities: list[float] | None = None,
    gammas: list[float] | None = None,
) -> TensorFuser:
    """Drop the smallest changes and the outliers of every tensor, add the rest up.

    Of a tensor's n changes the int(gamma n) largest are dropped, the next int(density n) are kept
    and the rest is dropped. The paper's bounds 0.85 and 0.993 are the defaults.

    Args:
        density: the share of the changes that is kept.
        gamma: the share of the largest changes that is dropped.
        scale: multiplies the merged change before it is added to the base.
        elect: merge only changes with the elected sign (mergekit's breadcrumbs_ties).
        reduce: for elect, how agreeing changes combine.
        weights: one number per member; all 1 by default.
        densities: one density per member, instead of one for all.
        gammas: one gamma per member, instead of one for all.
    """
    share, top = one_each("density", densities, density), one_each("gamma", gammas, gamma)

    def merge(slab: Slab) -> Tensor:
        kept = (middle(d, share(member), top(member)) for member, d in enumerate(slab.deltas()))
        if elect:
            total = disjoint(kept, weights, reduce, majority=1.0)
        else:
            total = add_up(weighed(kept, weights))
        return total.mul_(scale).add_(slab.base)

    return TensorFuser(merge, one_by_one=True)


def middle(change: Tensor, density: float, gamma: float) -> Tensor:
    """A change without its smallest and its largest entries."""
    if density >= 1:
        return change
    count = change.numel()
    kept, outliers = int(density * count), int(gamma * count)
    first = max(0, count - kept - outliers)
    return keep_ranks(change, first, min(first + kept, count))
