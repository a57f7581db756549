"""Snow: streaked flakes over a whitened picture."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.blur.motion_blur import streak
from stockpot.corrupt.blur.zoom_blur import clipped_zoom
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.draws import Draws
from stockpot.corrupt.levels import constant, truncate


@corruptions.register("snow", paper="arXiv:1903.12261", group="weather", benchmark=True)
def snow(pixels: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Whiten the picture and let enlarged, smeared noise fall over it."""
    normal = draws.normal(pixels.shape[2:])
    angle = draws.uniform((), stream=1) * 90 - 135
    return let_snow(pixels, constants, normal, angle)


def let_snow(pixels: Tensor, constants: Constants, normal: Tensor, degrees: Tensor) -> Tensor:
    """Snow from a given standard normal field (N x H x W) and direction of fall (N)."""
    mean, deviation, zoom, threshold, radius, sigma, mix = constants
    flakes = clipped_zoom((normal * deviation + mean)[:, None], zoom)
    flakes = (flakes * (flakes >= threshold)).clamp_(0, 1)
    layer = (flakes * 255).floor_()  # 8 bits by truncation, as everything here
    layer = streak(layer, int(radius), sigma, degrees)

    values = pixels.float()
    grey = (values * constant((0.299, 0.587, 0.114), pixels.device)).sum(1, keepdim=True)
    whitened = torch.maximum(values, grey * 1.5 + 127.5)
    picture = values.mul_(mix).add_(whitened, alpha=1 - mix)
    # The layer falls twice, once turned by 180 degrees.
    return truncate(picture.add_(layer + layer.flip(2, 3)))
