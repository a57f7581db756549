"""TALL masks: recover every task from one summed change (Wang et al., arXiv:2405.07813)."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, SwitchFuser
from stockpot.fuse.sparse.combine import add_up
from stockpot.fuse.sparse.consensus_ta import uses


@fusers.register("tall_mask", paper="arXiv:2405.07813", needs_base=True)
def tall_mask(
    *, strictness: float = 0.6, rule: Literal["paper", "fusionbench"] = "paper"
) -> SwitchFuser:
    """The summed change, masked for each member to the weights that it uses.

    theta_t = theta_0 + m_t tau, m_t = |tau_t| > strictness |tau - tau_t|, tau the summed change.

    Args:
        strictness: lambda of the paper; larger means sparser masks.
        rule: the paper's mask, or the one that FusionBench computes, which compares |theta_0 -
            tau_t| instead of |tau_t|.
    """

    def merge(slab: Slab) -> list[Tensor]:
        total = add_up(slab.deltas())
        models = []
        for delta in slab.deltas():
            if rule == "paper":
                mask = uses(delta, total, strictness)
            else:
                mask = (slab.base - delta).abs() > strictness * (total - delta).abs()
            models.append(slab.base + total * mask)
        return models

    return SwitchFuser(merge, elementwise=True)
