"""A change of colour: one affine map of the channels per image, and a gamma."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.dynamic.generator import Encoded, Generator, Parametric, into_box
from stockpot.dynamic.generators import generators
from stockpot.types import NonNegative

_LEAST = 1e-3  # below this a power has a gradient that no step survives


class ColourGenerator(Parametric):
    """Thirteen latents: a 3 x 3 matrix and an offset, as changes, and the logarithm of gamma."""

    name = "colour"
    step = 0.02

    def __init__(self, limit: float) -> None:
        super().__init__(-limit, limit)

    def to(self, device: torch.device) -> ColourGenerator:
        """Nothing to move."""
        return self

    def encode(self, pixels: Tensor, seeds: Tensor) -> Encoded:
        """No change."""
        return Encoded(pixels.new_zeros(len(pixels), 13), pixels)

    def decode(self, latents: Tensor, context: Tensor) -> Tensor:
        """Mix the channels, add the offset, apply gamma."""
        matrix = latents[:, :9].view(-1, 3, 3) + torch.eye(3).to(latents)
        flat = torch.baddbmm(latents[:, 9:12, None], matrix, context.flatten(2).to(latents.dtype))
        mixed = into_box(flat.view(context.shape))
        gamma = latents[:, 12].exp().view(-1, 1, 1, 1)
        # At gamma 1 this is the identity, also for black.
        safe = mixed.clamp_min(_LEAST)
        # As exp and log, whose gradients need no case for zero as that of a power does.
        return mixed + (gamma * safe.log()).exp() - safe


@generators.register("colour", holds=("brightness", "contrast", "saturate"))
def colour(*, limit: NonNegative = 0.4) -> Generator:
    """Mix, shift and bend the colour channels of an image.

    Args:
        limit: the largest change of a matrix entry, of the offset, and of the logarithm of gamma.
    """
    return ColourGenerator(limit)
