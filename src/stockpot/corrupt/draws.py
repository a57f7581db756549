"""Random numbers that depend on an image's seed and an index, and on nothing else.

A counter-based generator: the 32 bits at index i of an image are a hash of i and the image's two
key words, computed with integer operations that wrap alike on every device. So a field is the same
at batch 1 or 64, in any order, on a CPU or a GPU, and no state exists that could be shared.

The hash has the multiply and xor-shift form of the 32-bit finalisers whose constants were found by
exhaustive search for low bias (Wellons' `triple32`); the second key word enters between the rounds,
so that two images never run through shifted copies of one sequence. Normal values come from a table
of 2^16 normal quantiles, looked up with half a word each: the same floats everywhere, cut off at
4.3 standard deviations.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stockpot.corrupt.fused.kernel import Kernel

_BITS, _UNIFORM = Kernel("fields:bits"), Kernel("fields:uniform")
_NORMAL, _INTEGERS = Kernel("fields:normal"), Kernel("fields:integers")

# The multipliers 0xed5ad4bb, 0xac4c1b51 and 0x31848bab as signed 32-bit words.
_FIRST, _SECOND, _THIRD = -312814405, -1404298415, 830770091
_STREAM = -1640531527  # 0x9e3779b9, spreads stream numbers over the key
_MASK, _GOLDEN = (1 << 64) - 1, 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class Draws:
    """The random numbers of a batch at one cell (corruption and severity) of the table.

    Cells are independent of each other, as they were in the original files.
    """

    seeds: Sequence[int]
    cell: str
    device: torch.device

    def __len__(self) -> int:
        return len(self.seeds)

    @cached_property
    def keys(self) -> Tensor:
        """Two key words per image, int32 of shape N x 2; made when first needed."""
        cell = zlib.crc32(self.cell.encode()) * _GOLDEN & _MASK
        words = np.array([seed & _MASK for seed in self.seeds], dtype=np.uint64)
        with np.errstate(over="ignore"):
            words = _mix(_mix(words) + np.uint64(cell))
        keys = torch.from_numpy(words.view(np.int32).reshape(-1, 2))
        # Without waiting: a copy of a few bytes must not stop a GPU.
        return keys.to(self.device, non_blocking=True)

    def bits(self, count: int, stream: int = 0) -> Tensor:
        """`count` words of 32 random bits per image, as int32 of shape N x count."""

        def plain() -> Tensor:
            word = torch.arange(count, dtype=torch.int32, device=self.device)
            word = word + (self.keys[:, :1] + _shift(stream))
            word ^= (word >> 17) & 0x7FFF
            word *= _FIRST
            word ^= self.keys[:, 1:]
            word ^= (word >> 11) & 0x1FFFFF
            word *= _SECOND
            word ^= (word >> 15) & 0x1FFFF
            word *= _THIRD
            word ^= (word >> 14) & 0x3FFFF
            return word

        return _BITS(plain, self.device, self.keys, count, _shift(stream))

    def uniform(self, shape: Sequence[int], stream: int = 0) -> Tensor:
        """Floats in [0, 1) with 24 bits each, of shape N x shape."""
        count = int(np.prod(shape))

        def plain() -> Tensor:
            return ((self.bits(count, stream) >> 8) & 0xFFFFFF).float().mul_(2.0**-24)

        field = _UNIFORM(plain, self.device, self.keys, count, _shift(stream))
        return field.view(len(self), *shape)

    def normal(self, shape: Sequence[int], stream: int = 0) -> Tensor:
        """Standard normal floats of shape N x shape."""
        count = int(np.prod(shape))
        table = _normal_quantiles(self.keys.device)

        def plain() -> Tensor:
            halves = self.halves(count, stream)
            return table.index_select(0, halves.flatten()).view(len(self), count)

        field = _NORMAL(plain, self.device, self.keys, table, count, _shift(stream))
        return field.view(len(self), *shape)

    def halves(self, count: int, stream: int = 0) -> Tensor:
        """`count` integers of 16 random bits per image, 0 to 65535, as int32 of shape N x count."""
        words = self.bits((count + 1) // 2, stream)
        return words.view(torch.int16)[:, :count].int() + 2**15

    def integers(self, low: int, high: int, shape: Sequence[int], stream: int = 0) -> Tensor:
        """Integers from low to high - 1, as int32 of shape N x shape; the range is at most 2^15.

        Scaling 16 bits leaves a bias of at most one part in 65536 / (high - low).
        """
        count, span = int(np.prod(shape)), high - low

        def plain() -> Tensor:
            return ((self.halves(count, stream) * span) >> 16) + low

        field = _INTEGERS(plain, self.device, self.keys, count, _shift(stream), low, span)
        return field.view(len(self), *shape)


def _shift(stream: int) -> int:
    """How far a stream's first key lies from the image's, as a signed 32-bit word."""
    return (stream * _STREAM + 2**31) % 2**32 - 2**31


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64: every bit of a seed reaches every bit of the key."""
    words = words + np.uint64(_GOLDEN)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(words ^ (words >> np.uint64(31)))


@lru_cache(maxsize=8)
def _normal_quantiles(device: torch.device) -> Tensor:
    middles = (torch.arange(2**16, dtype=torch.float64) + 0.5) / 2**16
    quantiles: Tensor = torch.special.ndtri(middles)
    return quantiles.float().to(device)
