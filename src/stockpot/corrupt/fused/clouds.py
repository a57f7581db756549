"""One octave of fog's cloud: a grid and its random field in, a grid of twice the side out."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 256


@triton.jit
def _middle(grid, field, y, x, side, roughness, mask):
    below, right = (y + 1) % side * side, (x + 1) % side
    here = tl.load(grid + y * side + x, mask=mask) + tl.load(grid + below + x, mask=mask)
    beside = tl.load(grid + y * side + right, mask=mask) + tl.load(grid + below + right, mask=mask)
    return (here + beside) * 0.25 + tl.load(field + y * side + x, mask=mask) * roughness


@triton.jit(do_not_specialize=["side", "stride", "roughness"])
def _octave(grids, fields, out, side, stride, roughness, size: tl.constexpr):
    image = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * size + tl.arange(0, size)
    area = side * side
    mask = place < area
    y, x = place // side, place % side
    up, left = (y + side - 1) % side, (x + side - 1) % side
    grid, field = grids + image * area, fields + image * stride
    here = tl.load(grid + place, mask=mask)
    right = tl.load(grid + y * side + (x + 1) % side, mask=mask)
    below = tl.load(grid + (y + 1) % side * side + x, mask=mask)
    middle = _middle(grid, field, y, x, side, roughness, mask)
    above = _middle(grid, field, up, x, side, roughness, mask)
    before = _middle(grid, field, y, left, side, roughness, mask)
    rough = tl.load(field + area + place, mask=mask) * roughness
    on_rows = (middle + above + here + right) * 0.25 + rough
    rough = tl.load(field + 2 * area + place, mask=mask) * roughness
    on_columns = (middle + before + here + below) * 0.25 + rough
    corner = out + image * 4 * area + 4 * side * y + 2 * x
    tl.store(corner, here, mask=mask)
    tl.store(corner + 1, on_rows, mask=mask)
    tl.store(corner + 2 * side, on_columns, mask=mask)
    tl.store(corner + 2 * side + 1, middle, mask=mask)


def octave(grid: Tensor, field: Tensor, roughness: float) -> Tensor:
    """As one round of `fog.plasma`.

    Args:
        grid: N x side x side, contiguous.
        field: N x (3 side^2), rows of a larger field, before the roughness.
        roughness: what the field is multiplied by.
    """
    batch, side, _ = grid.shape
    out = grid.new_empty(batch, 2 * side, 2 * side)
    # Every operation rounds by itself, as the plain ones do.
    _octave[(batch, triton.cdiv(side * side, _BLOCK))](
        grid, field, out, side, field.stride(0), roughness, size=_BLOCK, enable_fp_fusion=False
    )
    return out
