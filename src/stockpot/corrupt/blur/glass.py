"""Glass: pixels copied from near by, as through frosted glass, between two gaussian blurs.

The original scans the picture backwards and lets each pixel "swap" with a random neighbour. Its
swap works on array views, so it is a copy: the pixel takes the neighbour's present value and the
neighbour stays. That defect defines the benchmark. Because a neighbour that was scanned before
already holds what it copied itself, values travel along chains. Here the chains are followed
by pointer doubling, which gives the same picture as the scan in a few passes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.draws import Draws
from stockpot.corrupt.levels import truncate
from stockpot.corrupt.separable import smooth


@corruptions.register("glass_blur", paper="arXiv:1903.12261", group="blur", benchmark=True)
def glass_blur(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Blur, copy pixels from random neighbours, blur again."""
    _, reach, passes = constants
    height, width = pixels.shape[-2:]
    rows, columns = _scanned(height, int(reach)), _scanned(width, int(reach))
    # Quirk kept: the upper end is excluded, so pixels drift towards the upper left.
    steps = draws.integers(-int(reach), int(reach), (int(passes), rows, columns, 2))
    return glass(pixels, constants, steps)


def glass(pixels: Tensor, constants: Constants, steps: Tensor) -> Tensor:
    """Glass blur with given steps.

    Args:
        pixels: uint8, N x 3 x H x W.
        constants: sigma, largest step, passes.
        steps: N x passes x rows x columns x 2, the (dx, dy) of each scanned pixel in the order of
            the scan: from the lower right corner, row by row, to the upper left.
    """
    sigma, reach, passes = constants
    shuffled = truncate(smooth(pixels.float(), sigma))
    sources = None
    for number in range(int(passes)):
        newest = chain_ends(steps[:, number], int(reach), *pixels.shape[-2:])
        sources = newest if sources is None else sources.gather(1, newest)
    if sources is not None:
        every_channel = sources[:, None].expand(-1, pixels.shape[1], -1)
        shuffled = shuffled.flatten(2).gather(2, every_channel).view_as(pixels)
    return truncate(smooth(shuffled.float(), sigma))


def chain_ends(steps: Tensor, reach: int, height: int, width: int) -> Tensor:
    """For each pixel, the pixel whose old value it holds after one scan; N x (H W), int64."""
    rows, columns = steps.shape[1:3]
    right, down = steps.flip(1, 2).unbind(-1)  # the scan runs backwards; this is raster order
    place = torch.arange(height * width, device=steps.device).view(height, width)
    source = place.expand(len(steps), height, width).clone()
    jump = source.clone()
    inner = slice(reach + 1, reach + 1 + rows), slice(reach + 1, reach + 1 + columns)
    source[:, *inner] += down * width + right
    # A source later in raster order was scanned before, so it holds its new value: jump there. A
    # source that was not scanned yet, or never is, still holds its old value: the chain ends.
    row = torch.arange(rows, device=steps.device)[:, None] + down
    column = torch.arange(columns, device=steps.device) + right
    ahead = (down > 0) | ((down == 0) & (right > 0))
    jumps = ahead & (row < rows) & (column >= 0) & (column < columns)
    jump[:, *inner] += (down * width + right) * jumps
    jump, source = jump.flatten(1), source.flatten(1)
    if reach > 1:  # with a reach of one no source lies ahead
        for _ in range((rows * columns - 1).bit_length()):
            further = jump.gather(1, jump)
            # Chains are short; a CPU may look and stop early, a GPU would have to wait to look.
            if further.device.type == "cpu" and torch.equal(further, jump):
                break
            jump = further
    return source.gather(1, jump)


def _scanned(size: int, reach: int) -> int:
    return size - 2 * reach
