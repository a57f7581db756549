"""Motion: a one-sided streak in a random direction."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.draws import Draws
from stockpot.corrupt.fused.kernel import Kernel
from stockpot.corrupt.levels import constant

_STREAKS = Kernel("streaks:streaks")


@corruptions.register("motion_blur", paper="arXiv:1903.12261", group="blur", benchmark=True)
def motion_blur(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Smear along a direction between -45 and 45 degrees, as a moving camera does."""
    radius, sigma = constants
    angle = draws.uniform(()) * 90 - 45
    return streak(pixels, int(radius), sigma, angle).to(torch.uint8)


def streak(pixels: Tensor, radius: int, sigma: float, degrees: Tensor) -> Tensor:
    """ImageMagick's motion blur: 2 radius + 1 taps of half a gaussian along a line.

    Beyond the border the outermost pixel repeats; the result is whole levels, truncated.

    Args:
        pixels: N x C x H x W, values 0 to 255.
        radius: half the number of taps; the streak is 2 radius long.
        sigma: of the gaussian, whose peak lies on the pixel itself.
        degrees: the direction of each image, N.
    """
    count = 2 * radius + 1
    taps = [math.exp(-0.5 * (step / sigma) ** 2) for step in range(count)]
    weights = tuple(tap / sum(taps) for tap in taps)
    # In double precision on any device: a tap's place is a rounding, which must not differ.
    radians = torch.deg2rad(degrees.double())[:, None]
    steps = torch.arange(count, dtype=torch.float64, device=pixels.device)
    right = torch.ceil(steps * radians.cos() - 0.5).long()
    down = torch.ceil(steps * radians.sin() - 0.5).long()
    return _STREAKS(
        lambda: _summed(pixels, weights, right, down), pixels.device,
        pixels.contiguous(), constant(weights, pixels.device), right, down,
    )  # fmt: skip


def _summed(pixels: Tensor, weights: tuple[float, ...], right: Tensor, down: Tensor) -> Tensor:
    """The weighted sum of the taps at N x taps places, truncated."""
    reach = len(weights) - 1
    batch, channels, height, width = pixels.shape
    padded = F.pad(pixels.float(), (reach, reach, reach, reach), mode="replicate")
    plane, line = padded[0, 0].numel(), padded.shape[-1]
    # A shift by (right, down) is an offset into the flat memory of a plane. All windows that start
    # at some offset are one strided view, and choosing rows of it moves whole pictures at once.
    length = (height - 1) * line + width
    windows = padded.as_strided((padded.numel() - length + 1, length), (1, 1))
    offsets = (down + reach) * line + right + reach
    planes = torch.arange(batch * channels, device=pixels.device) * plane
    starts = planes + offsets.repeat_interleave(channels, 0).T.contiguous()
    total = padded.new_zeros(batch * channels, height * line)
    for weight, begin in zip(weights, starts, strict=True):
        total[:, :length].add_(windows.index_select(0, begin), alpha=weight)
    smeared = total.view(batch, channels, height, line)[..., :width]
    return smeared.floor()
