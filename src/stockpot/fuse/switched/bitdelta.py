"""BitDelta: a member as its base and one bit for each weight (Liu et al., arXiv:2402.10193)."""

from __future__ import annotations

import re
from typing import Literal

from torch import Tensor

from stockpot.checkpoints.small import BITS, SCALE, from_bits, pack_bits
from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, Small, SwitchFuser

_TABLE = re.compile(r"embed|position|token")


@fusers.register("bitdelta", paper="arXiv:2402.10193", needs_base=True, linear=True)
def bitdelta(*, scale: float = 1.0, others: Literal["whole", "base"] = "whole") -> SwitchFuser:
    """Keep the sign of every change and one size for each matrix: a small model for every member.

    theta_t = theta_0 + scale mean|tau_t| sign(tau_t) for each matrix of a layer, the mean over the
    matrix and no change counting as positive. A folder holds one bit for each weight in place of
    the weights, names its base, and is read like any other model.

    Args:
        scale: multiplies the size of the changes.
        others: what is no matrix (biases, norms, embeddings, convolutions) is kept whole, or stays
            as in the base.
    """

    def packed(name: str, shape: tuple[int, ...]) -> bool:
        return len(shape) == 2 and not _TABLE.search(name)

    def pack(slab: Slab) -> list[dict[str, Tensor]]:
        found = []
        for change in slab.deltas():
            size = change.abs().mean() * scale
            found.append({BITS: pack_bits(change >= 0), SCALE: size.cpu()})
        return found

    def merge(slab: Slab) -> list[Tensor]:
        if packed(slab.name, slab.info.shape):
            return [from_bits(slab.base, own[BITS], own[SCALE]) for own in pack(slab)]
        if others == "whole":
            return list(slab.members())
        return [slab.base] * slab.count

    return SwitchFuser(merge, small=Small("bits", packed, pack=pack))
