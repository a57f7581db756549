"""Convolutions for which cuDNN has no quick kernel; to be imported only where there is a GPU.

Both are products with few columns of weights, in bfloat16, with what follows them: they take the
time that it takes to read the maps and to write them.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS, _SMALL = 128, 64
"""Places that a program works on; of the product that reads what a block adds, fewer."""

# No types of Python inside kernels: Triton would look them up as values.


@triton.jit  # type: ignore[untyped-decorator]
def _windows(  # type: ignore[no-untyped-def]
    maps, weight, bias, out, count, rows, columns, wide, high,
    side: tl.constexpr, line: tl.constexpr, channels: tl.constexpr, filters: tl.constexpr,
    block: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0) * block + tl.arange(0, block)
    shown = (place < count)[:, None]
    image = place // (rows * columns)
    y, x = place % (rows * columns) // columns, place % columns
    part = tl.arange(0, line)[None, :]
    # The neighbours in a line lie beside each other, all their channels too.
    at = ((image.to(tl.int64) * high + y) * wide + x)[:, None] * channels + part
    filter_ = tl.arange(0, filters)
    own = weight + filter_[None, :] * (side * line) + tl.arange(0, line)[:, None]
    total = tl.zeros((block, filters), tl.float32)
    for down in tl.static_range(side):
        seen = tl.load(maps + at + down * wide * channels, mask=shown, other=0.0)
        total = tl.dot(seen, tl.load(own + down * line), total)
    total += tl.load(bias + filter_).to(tl.float32)[None, :]
    # What is no number stays none.
    found = tl.where(total < 0, 0.0, total)
    tl.store(out + place.to(tl.int64)[:, None] * filters + filter_[None, :], found, mask=shown)


@triton.jit  # type: ignore[untyped-decorator]
def _added(  # type: ignore[no-untyped-def]
    maps, weight, bias, rest, out, count, filters,
    channels: tl.constexpr, block: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    parts = filters // width
    # Those that read the same maps run beside each other.
    place = tl.program_id(0) // parts * block + tl.arange(0, block)
    filter_ = tl.program_id(0) % parts * width + tl.arange(0, width)
    channel = tl.arange(0, channels)
    shown = (place < count)[:, None]
    far = place.to(tl.int64)[:, None]
    seen = tl.load(maps + far * channels + channel[None, :], mask=shown, other=0.0)
    total = tl.dot(seen, tl.load(weight + filter_[None, :] * channels + channel[:, None]))
    total += tl.load(bias + filter_).to(tl.float32)[None, :]
    at = far * filters + filter_[None, :]
    total += tl.load(rest + at, mask=shown, other=0.0).to(tl.float32)
    tl.store(out + at, tl.where(total < 0, 0.0, total), mask=shown)


def windows(maps: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`relu(conv2d(maps, weight, bias))` with stride 1 and nothing around; channels last."""
    count, channels, high, wide = maps.shape
    filters, _, side, _ = weight.shape
    rows, columns = high - side + 1, wide - side + 1
    out = torch.empty(
        (count, filters, rows, columns), dtype=maps.dtype, device=maps.device,
        memory_format=torch.channels_last,
    )  # fmt: skip
    places = count * rows * columns
    _windows[(triton.cdiv(places, _ROWS),)](
        maps, weight, bias, out, places, rows, columns, wide, high, side=side,
        line=side * channels, channels=channels, filters=filters, block=_ROWS, num_warps=8,
    )  # fmt: skip
    return out


def added(maps: Tensor, weight: Tensor, bias: Tensor, rest: Tensor) -> Tensor:
    """`relu(conv2d(maps, weight, bias) + rest)` of 1 x 1; channels last."""
    out = torch.empty_like(rest)
    filters, places = len(weight), rest.numel() // len(weight)
    _added[(triton.cdiv(places, _SMALL) * (filters // _SMALL),)](
        maps, weight, bias, rest, out, places, filters,
        channels=weight.shape[1], block=_SMALL, width=_SMALL, num_warps=4,
    )  # fmt: skip
    return out
