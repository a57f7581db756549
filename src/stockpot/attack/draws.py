"""Random numbers that belong to an image: a hash of its seed, a place and an index.

No state is kept, so an image meets the same numbers alone, in a batch of a thousand, or after its
neighbours have left the batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

# SplitMix64: an additive constant and two multipliers, as signed 64-bit words.
_GOLDEN = -7046029254386353131
_FIRST = -4658895280553007687
_SECOND = -7723592293110705685


def uniform(seeds: Tensor, shape: Sequence[int], *place: int) -> Tensor:
    """Floats in [0, 1) of shape N x shape; `place` tells one use of a seed from another."""
    key = _mix(seeds)
    for number in place:
        key = _mix(key + number)
    index = torch.arange(math.prod(shape), device=seeds.device)
    bits = _mix(key[:, None] + index * _GOLDEN)
    return ((bits >> 40) & 0xFFFFFF).float().mul_(2.0**-24).view(len(seeds), *shape)


def normal(seeds: Tensor, shape: Sequence[int], *place: int) -> Tensor:
    """Standard normal floats of shape N x shape."""
    # The middle of each of the 2^24 cells, so that 0 and 1 never meet the quantile function.
    middle = uniform(seeds, shape, *place).double() + 2.0**-25
    quantiles: Tensor = torch.special.ndtri(middle)
    return quantiles.float()


def signs(seeds: Tensor, shape: Sequence[int], *place: int) -> Tensor:
    """-1.0 or 1.0, each with equal chance."""
    return uniform(seeds, shape, *place).sub_(0.5).sign_().add_(0.5).sign_()


def _mix(words: Tensor) -> Tensor:
    words = words + _GOLDEN
    words = (words ^ ((words >> 30) & 0x3FFFFFFFF)) * _FIRST
    words = (words ^ ((words >> 27) & 0x1FFFFFFFFF)) * _SECOND
    return words ^ ((words >> 31) & 0x1FFFFFFFF)
