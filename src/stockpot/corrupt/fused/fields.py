"""The random fields of `draws.py` in one pass: the hash of an index, and what is made of it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


@triton.jit
def _hash(index, first, second):
    """32 random bits; the constants are those of `draws.py`."""
    word = index + first
    word = (word ^ ((word >> 17) & 0x7FFF)) * -312814405
    word = word ^ second
    word = (word ^ ((word >> 11) & 0x1FFFFF)) * -1404298415
    word = (word ^ ((word >> 15) & 0x1FFFF)) * 830770091
    return word ^ ((word >> 14) & 0x3FFFF)


@triton.jit(do_not_specialize=["count", "shift"])
def _bits(keys, out, count, shift, size: tl.constexpr):
    image = tl.program_id(0)
    index = tl.program_id(1) * size + tl.arange(0, size)
    first, second = tl.load(keys + 2 * image), tl.load(keys + 2 * image + 1)
    word = _hash(index, first + shift, second)
    tl.store(out + image.to(tl.int64) * count + index, word, mask=index < count)


@triton.jit(do_not_specialize=["count", "shift"])
def _uniform(keys, out, count, shift, size: tl.constexpr):
    image = tl.program_id(0)
    index = tl.program_id(1) * size + tl.arange(0, size)
    first, second = tl.load(keys + 2 * image), tl.load(keys + 2 * image + 1)
    word = _hash(index, first + shift, second)
    value = ((word >> 8) & 0xFFFFFF).to(tl.float32) * 5.9604644775390625e-08
    tl.store(out + image.to(tl.int64) * count + index, value, mask=index < count)


@triton.jit(do_not_specialize=["count", "shift"])
def _normal(keys, table, out, count, shift, size: tl.constexpr):
    image = tl.program_id(0)
    word_index = tl.program_id(1) * size + tl.arange(0, size)
    first, second = tl.load(keys + 2 * image), tl.load(keys + 2 * image + 1)
    word = _hash(word_index, first + shift, second)
    row = out + image.to(tl.int64) * count
    # The lower half of a word belongs to the even places, as in the memory of this machine.
    low = ((word << 16) >> 16) + 32768
    tl.store(row + 2 * word_index, tl.load(table + low), mask=2 * word_index < count)
    high = (word >> 16) + 32768
    tl.store(row + 2 * word_index + 1, tl.load(table + high), mask=2 * word_index + 1 < count)


@triton.jit(do_not_specialize=["count", "shift", "low", "span"])
def _integers(keys, out, count, shift, low, span, size: tl.constexpr):
    image = tl.program_id(0)
    word_index = tl.program_id(1) * size + tl.arange(0, size)
    first, second = tl.load(keys + 2 * image), tl.load(keys + 2 * image + 1)
    word = _hash(word_index, first + shift, second)
    row = out + image.to(tl.int64) * count
    even = (((((word << 16) >> 16) + 32768) * span) >> 16) + low
    tl.store(row + 2 * word_index, even, mask=2 * word_index < count)
    odd = ((((word >> 16) + 32768) * span) >> 16) + low
    tl.store(row + 2 * word_index + 1, odd, mask=2 * word_index + 1 < count)


def bits(keys: Tensor, count: int, shift: int) -> Tensor:
    """As `Draws.bits`."""
    out = torch.empty(len(keys), count, dtype=torch.int32, device=keys.device)
    _bits[_grid(keys, count)](keys, out, count, shift, size=_BLOCK)
    return out


def uniform(keys: Tensor, count: int, shift: int) -> Tensor:
    """As `Draws.uniform`, flat."""
    out = torch.empty(len(keys), count, device=keys.device)
    _uniform[_grid(keys, count)](keys, out, count, shift, size=_BLOCK)
    return out


def normal(keys: Tensor, table: Tensor, count: int, shift: int) -> Tensor:
    """As `Draws.normal`, flat."""
    out = torch.empty(len(keys), count, device=keys.device)
    _normal[_grid(keys, (count + 1) // 2)](keys, table, out, count, shift, size=_BLOCK)
    return out


def integers(keys: Tensor, count: int, shift: int, low: int, span: int) -> Tensor:
    """As `Draws.integers`, flat."""
    out = torch.empty(len(keys), count, dtype=torch.int32, device=keys.device)
    _integers[_grid(keys, (count + 1) // 2)](keys, out, count, shift, low, span, size=_BLOCK)
    return out


def _grid(keys: Tensor, count: int) -> tuple[int, int]:
    return len(keys), triton.cdiv(count, _BLOCK)
