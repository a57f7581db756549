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
from stockpot.corrupt.fused.kernel import Kernel
from stockpot.corrupt.levels import truncate
from stockpot.corrupt.separable import smooth

_SHUFFLED = Kernel("chains:shuffled")


@corruptions.register("glass_blur", paper="arXiv:1903.12261", group="blur", benchmark=True)
def glass_blur(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Blur, copy pixels from random neighbours, blur again."""
    _, reach, passes = constants
    height, width = pixels.shape[-2:]
    rows, columns = _scanned(height, int(reach)), _scanned(width, int(reach))
    # Quirk kept: the upper end is excluded, so pixels drift towards the upper left.
    steps = draws.integers(-int(reach), int(reach), (int(passes), 2, rows, columns))
    return glass(pixels, constants, steps)


def glass(pixels: Tensor, constants: Constants, steps: Tensor) -> Tensor:
    """Glass blur with given steps.

    Args:
        pixels: uint8, N x 3 x H x W.
        constants: sigma, largest step, passes.
        steps: N x passes x 2 x rows x columns, how far to the right and down each scanned pixel
            looks, in raster order (the scan itself runs backwards, from the lower right corner).
    """
    sigma, reach, _ = constants
    blurred = truncate(smooth(pixels.float(), sigma)).contiguous()
    shuffled = _SHUFFLED(
        lambda: _shuffled(blurred, steps, int(reach)), pixels.device,
        blurred, steps.int().contiguous(), int(reach),
    )  # fmt: skip
    return truncate(smooth(shuffled.float(), sigma))


def _shuffled(pixels: Tensor, steps: Tensor, reach: int) -> Tensor:
    """The pictures after all scans."""
    sources = None
    for newest in steps.unbind(1):
        ends = chain_ends(newest, reach, *pixels.shape[-2:])
        sources = ends if sources is None else sources.gather(1, ends)
    if sources is None:
        return pixels
    every_channel = sources[:, None].expand(-1, pixels.shape[1], -1)
    return pixels.flatten(2).gather(2, every_channel).view_as(pixels)


def chain_ends(steps: Tensor, reach: int, height: int, width: int) -> Tensor:
    """For each pixel, the pixel whose old value it holds after one scan; N x (H W), int64."""
    right, down = steps.int().unbind(1)
    rows, columns = right.shape[1:]
    place = torch.arange(height * width, device=steps.device).view(height, width)
    source = place.expand(len(steps), height, width).clone()
    jump = source.clone()
    inner = slice(reach + 1, reach + 1 + rows), slice(reach + 1, reach + 1 + columns)
    offset = down * width + right
    source[:, *inner] += offset
    # A source later in raster order was scanned before, so it holds its new value: jump there. A
    # source that was not scanned yet, or never is, still holds its old value: the chain ends.
    row = torch.arange(rows, dtype=torch.int32, device=steps.device)[:, None]
    column = torch.arange(columns, dtype=torch.int32, device=steps.device)
    scanned = (down < rows - row) & (right >= -column) & (right < columns - column)
    jump[:, *inner] += offset * (scanned & (offset > 0))
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
