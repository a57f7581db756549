"""Where elastic reads: the grid of its affine warp, and that of its displacements."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 512


@triton.jit(do_not_specialize=["height", "width"])
def _affine(from_x, from_y, units, out, height, width, size: tl.constexpr):
    image = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * size + tl.arange(0, size)
    mask = place < height * width
    y, x = place // width, place % width
    for axis in tl.static_range(2):
        fine = tl.load(from_x + (image * 2 + axis) * width + x, mask)
        fine = fine + tl.load(from_y + (image * 2 + axis) * height + y, mask) + 16.0
        # In 1/1024 pixel, cut to 1/32.
        where = tl.floor(fine * 0.03125) * 0.03125
        where = where * tl.load(units + axis) - 1.0
        tl.store(out + (image * height * width + place) * 2 + axis, where.to(tl.float32), mask)


@triton.jit
def _folded(where, count):
    last = (count - 1).to(tl.float32)
    where = tl.where(where < 0, tl.abs(where + 1.0), where)
    beyond = (2 * last - where) + (where >= count.to(tl.float32)).to(tl.float32)
    return tl.where(where > last, beyond, where)


@triton.jit(do_not_specialize=["amount", "unit_x", "unit_y", "height", "width"])
def _displaced(
    shifts, out, amount, unit_x, unit_y, height, width,
    size: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * size + tl.arange(0, size)
    area = height * width
    mask = place < area
    y, x = place // width, place % width
    right = tl.load(shifts + image * 2 * area + place, mask) * amount
    down = tl.load(shifts + (image * 2 + 1) * area + place, mask) * amount
    column = _folded(x.to(tl.float32) + right, width) * unit_x - 1.0
    row = _folded(y.to(tl.float32) + down, height) * unit_y - 1.0
    cell = out + (image * area + place) * 2
    tl.store(cell, column, mask)
    tl.store(cell + 1, row, mask)


def affine(from_x: Tensor, from_y: Tensor, units: Tensor) -> Tensor:
    """As the end of `elastic_transform._affine`: N x H x W x 2 from N x 2 x W and N x 2 x H."""
    batch, _, width = from_x.shape
    height = from_y.shape[2]
    out = torch.empty(batch, height, width, 2, device=from_x.device)
    grid = batch, triton.cdiv(height * width, _BLOCK)
    # Every operation rounds by itself, as the plain ones do; so below.
    _affine[grid](
        from_x.contiguous(), from_y.contiguous(), units, out, height, width, size=_BLOCK,
        enable_fp_fusion=False,
    )  # fmt: skip
    return out


def displaced(shifts: Tensor, amount: float, unit_x: float, unit_y: float) -> Tensor:
    """As the grid of `elastic_transform.displace`, from N x 2 x H x W smoothed shifts."""
    batch, _, height, width = shifts.shape
    out = torch.empty(batch, height, width, 2, device=shifts.device)
    grid = batch, triton.cdiv(height * width, _BLOCK)
    _displaced[grid](
        shifts.contiguous(), out, amount, unit_x, unit_y, height, width, size=_BLOCK,
        enable_fp_fusion=False,
    )  # fmt: skip
    return out
