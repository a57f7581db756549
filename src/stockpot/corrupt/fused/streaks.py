"""Motion blur's taps along a line, summed in one pass over the picture."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


@triton.jit(do_not_specialize=["taps", "channels", "height", "width"])
def _streak(
    pixels, weights, right, down, out, taps, channels,
    height, width, size: tl.constexpr,
):  # fmt: skip
    plane = tl.program_id(0)
    place = tl.program_id(1) * size + tl.arange(0, size)
    row, column = place // width, place % width
    area = height * width
    inside = place < area
    source = pixels + plane.to(tl.int64) * area
    shifts = (plane // channels) * taps
    total = tl.zeros((size,), dtype=tl.float32)
    for tap in range(taps):
        y = row + tl.load(down + shifts + tap)
        x = column + tl.load(right + shifts + tap)
        y = tl.minimum(tl.maximum(y, 0), height - 1)
        x = tl.minimum(tl.maximum(x, 0), width - 1)
        value = tl.load(source + y * width + x, mask=inside, other=0).to(tl.float32)
        total = tl.fma(value, tl.load(weights + tap), total)
    tl.store(out + plane.to(tl.int64) * area + place, tl.floor(total), mask=inside)


def streaks(pixels: Tensor, weights: Tensor, right: Tensor, down: Tensor) -> Tensor:
    """As the sum in `motion_blur.streak`, truncated.

    Args:
        pixels: N x C x H x W, contiguous.
        weights: of the taps, float32.
        right: N x taps, how far each tap lies to the right.
        down: N x taps, how far below.
    """
    batch, channels, height, width = pixels.shape
    out = torch.empty(pixels.shape, device=pixels.device)
    grid = batch * channels, triton.cdiv(height * width, _BLOCK)
    _streak[grid](
        pixels, weights, right.int().contiguous(), down.int().contiguous(), out, len(weights),
        channels, height, width, size=_BLOCK,
    )  # fmt: skip
    return out
