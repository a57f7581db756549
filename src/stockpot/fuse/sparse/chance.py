"""Random numbers that depend on the seed, the member, the tensor and the place in it alone.

They are drawn in blocks of fixed length, so the same numbers come whether a tensor is seen whole
or in stretches, on whatever device and by whichever thread.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from stockpot.fuse.fuser import Slab
from stockpot.fuse.stream import STRETCH

_BLOCK = STRETCH


def uniform(slab: Slab, count: int, *, seed: int, member: int) -> Tensor:
    """Numbers from [0, 1) for `count` elements of a slab, as a flat fp32 tensor on the CPU."""
    values = torch.empty(count)
    for start in range(0, count, _BLOCK):
        block = (slab.start + start) // _BLOCK
        text = f"{seed}/{member}/{slab.name}/{block}".encode()
        number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
        generator = torch.Generator().manual_seed(number)
        values[start : start + _BLOCK].uniform_(generator=generator)
    return values
