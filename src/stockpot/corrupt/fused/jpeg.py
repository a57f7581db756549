"""What a JPEG round trip does beside its DCTs: colours, steps of the table, colours again."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 512


@triton.jit(do_not_specialize=["height", "width", "rows", "columns"])
def _coded(pixels, out, height, width, rows, columns, size: tl.constexpr):
    image = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * size + tl.arange(0, size)
    mask = place < rows * columns
    y, x = tl.minimum(place // columns, height - 1), tl.minimum(place % columns, width - 1)
    area = height * width
    source = pixels + image * 3 * area + y * width + x
    red = tl.load(source, mask, other=0).to(tl.float32)
    green = tl.load(source + area, mask, other=0).to(tl.float32)
    blue = tl.load(source + 2 * area, mask, other=0).to(tl.float32)
    luma = red * 0.299 + green * 0.587 + blue * 0.114
    cb = red * -0.168735892 - green * 0.331264108 + blue * 0.5 + 128.0
    cr = red * 0.5 - green * 0.418687589 - blue * 0.081312411 + 128.0
    target = out + image * 3 * rows * columns + place
    tl.store(target, tl.floor(luma + 0.5), mask)
    tl.store(target + rows * columns, tl.floor(cb + 0.5), mask)
    tl.store(target + 2 * rows * columns, tl.floor(cr + 0.5), mask)


@triton.jit
def _quantised(raw, table, out, count, size: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * size + tl.arange(0, size)
    mask = place < count
    step = tl.load(table + place % 64)
    sharp = tl.floor(tl.load(raw + place, mask, other=0.0) * 8.0 + 0.5)
    whole = tl.floor(tl.div_rn(tl.abs(sharp) + 4.0 * step, 8.0 * step))
    whole = tl.where(sharp > 0, whole, tl.where(sharp < 0, -whole, 0.0))
    tl.store(out + place, whole * step, mask)


@triton.jit
def _whole(planes, place, mask):
    value = tl.floor(tl.load(planes + place, mask, other=0.0) + 128.0 + 0.5)
    return tl.minimum(tl.maximum(value, 0.0), 255.0)


@triton.jit
def _doubled(plane, y, x, high, wide, line, mask):
    """One value of chroma at the full resolution, from four at half of it."""
    row, column = y // 2, x // 2
    beside = tl.where(y % 2 == 0, tl.maximum(row - 1, 0), tl.minimum(row + 1, high - 1))
    near = tl.where(x % 2 == 0, tl.maximum(column - 1, 0), tl.minimum(column + 1, wide - 1))
    here = _whole(plane, row * line + column, mask) * 3.0
    here = here + _whole(plane, beside * line + column, mask)
    there = _whole(plane, row * line + near, mask) * 3.0
    there = there + _whole(plane, beside * line + near, mask)
    bias = tl.where(x % 2 == 0, 8.0, 7.0)
    return tl.floor((here * 3.0 + there + bias) * 0.0625) - 128.0


@triton.jit(do_not_specialize=["height", "width", "rows", "columns"])
def _decoded(
    luma, chroma, out, height, width, rows, columns,
    size: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * size + tl.arange(0, size)
    area = height * width
    mask = place < area
    y, x = place // width, place % width
    level = _whole(luma + image * rows * columns, y * columns + x, mask)
    high, wide, line = (height + 1) // 2, (width + 1) // 2, columns // 2
    quarter = (rows // 2) * line
    cb = _doubled(chroma + image * 2 * quarter, y, x, high, wide, line, mask)
    cr = _doubled(chroma + (image * 2 + 1) * quarter, y, x, high, wide, line, mask)
    red = level + tl.floor(cr * 1.402 + 0.5)
    green = level + tl.floor(cb * -0.344136286 - cr * 0.714136286 + 0.5)
    blue = level + tl.floor(cb * 1.772 + 0.5)
    target = out + image * 3 * area + place
    for channel in tl.static_range(3):
        value = red if channel == 0 else green if channel == 1 else blue
        value = tl.minimum(tl.maximum(value, 0.0), 255.0)
        tl.store(target + channel * area, value.to(tl.int32).to(tl.uint8), mask)


def coded(pixels: Tensor) -> Tensor:
    """As `dct._coded`; every operation rounds by itself, as the plain ones do, here and below."""
    batch, _, height, width = pixels.shape
    rows, columns = height + -height % 16, width + -width % 16
    out = torch.empty(batch, 3, rows, columns, device=pixels.device)
    grid = batch, triton.cdiv(rows * columns, _BLOCK)
    _coded[grid](
        pixels.contiguous(), out, height, width, rows, columns, size=_BLOCK, enable_fp_fusion=False
    )
    return out


def quantised(raw: Tensor, table: Tensor) -> Tensor:
    """As `dct._quantised`."""
    raw = raw.contiguous()
    out = torch.empty_like(raw)
    grid = (triton.cdiv(raw.numel(), _BLOCK),)
    _quantised[grid](raw, table.contiguous(), out, raw.numel(), size=_BLOCK, enable_fp_fusion=False)
    return out


def decoded(luma: Tensor, chroma: Tensor, height: int, width: int) -> Tensor:
    """As `dct._decoded`."""
    batch, _, rows, columns = luma.shape
    out = torch.empty(batch, 3, height, width, dtype=torch.uint8, device=luma.device)
    grid = batch, triton.cdiv(height * width, _BLOCK)
    _decoded[grid](
        luma.contiguous(), chroma.contiguous(), out, height, width, rows, columns, size=_BLOCK,
        enable_fp_fusion=False,
    )  # fmt: skip
    return out
