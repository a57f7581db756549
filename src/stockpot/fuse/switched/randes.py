"""RanDeS: all members in one change, each found again by a seed (arXiv:2505.11204)."""

from __future__ import annotations

import re
from typing import Literal

from torch import Tensor

from stockpot.checkpoints.small import column_signs, shuffled
from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, Small, SwitchFuser
from stockpot.types import Seed

_IN_LAYERS = re.compile(r"mlp|attn|attention|dense|fc\d|intermediate|output", re.IGNORECASE)


@fusers.register("randes", paper="arXiv:2505.11204", needs_base=True, linear=True)
def randes(
    *,
    scale: float = 0.5,
    seed: Seed = 42,
    shuffle: bool = True,
    vary: bool = True,
    others: Literal["sum", "average", "base"] = "sum",
) -> SwitchFuser:
    """Add up the members' changes under random signs, and take each out again by its own signs.

    shared = sum_t S_t tau_t, theta_t = theta_0 + scale S_t shared, S_t one random sign for each
    column of a matrix in the attention and MLP layers: what the others add there is noise. The
    folders hold the shared change once, and of each member its seed.

    Args:
        scale: multiplies the change that is taken out; 0.5 in FusionBench.
        seed: that of the first member; the next has the next.
        shuffle: members also exchange the layers that a matrix is added up under.
        vary: every matrix has signs of its own, not all of one width the same.
        others: what is no such matrix gets the sum of the changes, their average, or none.
    """

    def change(slab: Slab) -> Tensor:
        """What is shared under this name, as it is kept."""
        target, total = _is_target(slab.name, slab.info.shape), None
        for index in range(slab.count):
            own = slab
            if target and shuffle:
                own = slab.peers.slab(_back(slab, seed + index))
            values = own.delta(index)
            if target:
                values *= _signs(own, seed + index, vary)
            total = values if total is None else total.add_(values)
        if total is None:
            return slab.base * 0
        if not target and others != "sum":
            total = total / slab.count if others == "average" else total * 0
        return total.to(slab.info.dtype).to(total.dtype)

    def merge(slab: Slab) -> list[Tensor]:
        if not _is_target(slab.name, slab.info.shape):
            return [slab.base + change(slab) * scale] * slab.count
        made = []
        known: dict[str, Tensor] = {}
        for index in range(slab.count):
            place = _places(slab, seed + index)[slab.name] if shuffle else slab.name
            if place not in known:
                known[place] = change(slab.peers.slab(place) if shuffle else slab)
            signs = _signs(slab, seed + index, vary)
            made.append(slab.base + known[place] * signs * scale)
        return made

    settings = {"scale": scale, "shuffle": shuffle, "vary": vary}
    small = Small("superposed", _is_target, share=change, settings=settings, seed=seed)
    return SwitchFuser(merge, small=small)


def _is_target(name: str, shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and "embed" not in name and bool(_IN_LAYERS.search(name))


def _places(slab: Slab, seed: int) -> dict[str, str]:
    """Under which name each matrix of a member is added up."""
    return shuffled({
        name: info for name, info in slab.peers.infos.items() if _is_target(name, info.shape)
    }, seed)  # fmt: skip


def _back(slab: Slab, seed: int) -> str:
    """Which matrix of a member is added up under this name."""
    places = _places(slab, seed)
    return next((own for own, place in places.items() if place == slab.name), slab.name)


def _signs(slab: Slab, seed: int, vary: bool) -> Tensor:
    drawn = column_signs(slab.info.shape[-1], seed, slab.name if vary else None)
    return drawn.to(slab.base)
