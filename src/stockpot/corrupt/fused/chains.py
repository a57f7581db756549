"""Glass blur's chains of copied pixels, each followed to its end by the thread that shows it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 256


@triton.jit(do_not_specialize=["passes", "reach", "rows", "columns", "height", "width", "channels"])
def _shuffle(
    pixels, steps, out, passes, reach, rows, columns,
    height, width, channels, size: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * size + tl.arange(0, size)
    area, scan = height * width, rows * columns
    shown = place < area
    source = place
    # The last scan is asked first: it names the pixel whose value after the scans before it shows.
    for back in range(passes):
        field = steps + (image * passes + (passes - 1 - back)) * 2 * scan
        going = shown
        while tl.max(going.to(tl.int32), axis=0) > 0:
            row, column = source // width - reach - 1, source % width - reach - 1
            scanned = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
            at = row * columns + column
            right = tl.load(field + at, mask=going & scanned, other=0)
            down = tl.load(field + scan + at, mask=going & scanned, other=0)
            offset = down * width + right
            ahead = (down < rows - row) & (right >= -column) & (right < columns - column)
            source += offset
            going = going & scanned & ahead & (offset > 0)
    for channel in range(channels):
        plane = (image * channels + channel) * area
        value = tl.load(pixels + plane + source, mask=shown, other=0)
        tl.store(out + plane + place, value, mask=shown)


def shuffled(pixels: Tensor, steps: Tensor, reach: int) -> Tensor:
    """The picture after all scans, as in `glass_blur.glass`.

    Args:
        pixels: uint8, N x C x H x W, contiguous.
        steps: int32, N x passes x 2 x rows x columns, contiguous.
        reach: the largest step.
    """
    batch, channels, height, width = pixels.shape
    passes, _, rows, columns = steps.shape[1:]
    out = torch.empty_like(pixels)
    grid = batch, triton.cdiv(height * width, _BLOCK)
    _shuffle[grid](
        pixels, steps, out, passes, reach, rows, columns, height, width, channels, size=_BLOCK
    )
    return out
