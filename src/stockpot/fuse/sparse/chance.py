"""Random numbers that depend on the seed, the member, the tensor and the place in it alone.

They are hashes of a counter in integers, as those of corruptions are, in blocks of fixed length. So
the same numbers come whether a tensor is seen whole or in stretches, by whichever thread, and with
the same bits on a CPU and on a GPU, where they are made in place.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from stockpot.corrupt.draws import Draws
from stockpot.fuse.fuser import Slab
from stockpot.fuse.stream import STRETCH

_BLOCK = STRETCH


def uniform(slab: Slab, count: int, *, seed: int, member: int, device: torch.device) -> Tensor:
    """Numbers from [0, 1) for `count` elements of a slab, as a flat fp32 tensor."""
    start, stop = slab.start, slab.start + count
    parts = []
    for block in range(start // _BLOCK, -(-stop // _BLOCK)):
        first = block * _BLOCK
        text = f"{seed}/{member}/{slab.name}/{block}".encode()
        number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
        drawn = Draws([number], "", device)
        length = min(_BLOCK, stop - first)
        parts.append(drawn.uniform([length])[0, max(0, start - first) :])
    return parts[0] if len(parts) == 1 else torch.cat(parts) if parts else torch.empty(0)
