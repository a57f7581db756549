"""Zoom blur's sum over magnifications, all of them read in one pass."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 512


@triton.jit
def _source(places, offset, count, mask):
    """Where an axis is read, as torch's `grid_sample` finds it."""
    place = (tl.load(places + offset, mask, other=0.0) + 1.0) * 0.5 * (count - 1).to(tl.float32)
    return tl.minimum(tl.maximum(place, 0.0), (count - 1).to(tl.float32))


@triton.jit(do_not_specialize=["factors", "height", "width"])
def _zooms(pixels, rows, columns, out, factors, height, width, size: tl.constexpr):
    plane = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * size + tl.arange(0, size)
    area = height * width
    mask = place < area
    y, x = place // width, place % width
    picture = pixels + plane * area
    total = tl.load(picture + place, mask, other=0).to(tl.float32) * 2.0
    for factor in range(factors):
        across = _source(columns, factor * width + x, width, mask)
        along = _source(rows, factor * height + y, height, mask)
        left, top = tl.floor(across), tl.floor(along)
        # Weights as products of distances, then one addition after the other, each rounded once.
        right, below = left + 1.0, top + 1.0
        inside_x, inside_y = right < width, below < height
        corner = picture + top.to(tl.int32) * width + left.to(tl.int32)
        sample = tl.zeros((size,), dtype=tl.float32)
        value = tl.load(corner, mask, other=0).to(tl.float32)
        sample = tl.fma(value, (right - across) * (below - along), sample)
        value = tl.load(corner + 1, mask & inside_x, other=0).to(tl.float32)
        sample = tl.fma(value, (across - left) * (below - along), sample)
        value = tl.load(corner + width, mask & inside_y, other=0).to(tl.float32)
        sample = tl.fma(value, (right - across) * (along - top), sample)
        value = tl.load(corner + width + 1, mask & inside_x & inside_y, other=0).to(tl.float32)
        sample = tl.fma(value, (across - left) * (along - top), sample)
        total = total + sample
    tl.store(out + plane * area + place, total, mask)


def zooms(pixels: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """As the sum in `zoom_blur.zoom_blur`: the picture twice, and every magnification.

    Args:
        pixels: uint8, N x C x H x W, contiguous.
        rows: factors x H, where each row is read, from -1 to 1.
        columns: factors x W.
    """
    batch, channels, height, width = pixels.shape
    out = torch.empty(pixels.shape, device=pixels.device)
    grid = batch * channels, triton.cdiv(height * width, _BLOCK)
    _zooms[grid](
        pixels, rows, columns, out, len(rows), height, width, size=_BLOCK, enable_fp_fusion=False
    )
    return out
