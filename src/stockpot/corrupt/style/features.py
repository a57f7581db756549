"""Feature spaces in which a style is taken over, each with the way back to pixels.

| features | what they are |
|---|---|
| `haar` | colours and details of two by two pixels (Haar's wavelet): no model at all |
| an autoencoder | its latents: a zoo name such as `small-vqgan`, a diffusers folder, a checkpoint |
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.models.autoencoder.files import load_autoencoder
from stockpot.models.autoencoder.model import Autoencoder

HAAR = "haar"


class Features(Protocol):
    """From pixels 0 to 255 to feature channels and back; sides are multiples of `stride`."""

    stride: int

    def encode(self, pixels: Tensor) -> Tensor: ...

    def decode(self, features: Tensor) -> Tensor: ...


class Haar:
    """Means and three differences of every two by two pixels, by channel."""

    stride = 2

    def encode(self, pixels: Tensor) -> Tensor:
        """Twelve channels at half the size."""
        first, second = pixels[:, :, ::2, ::2], pixels[:, :, ::2, 1::2]
        third, fourth = pixels[:, :, 1::2, ::2], pixels[:, :, 1::2, 1::2]
        return torch.cat(
            [
                (first + second + third + fourth) / 4,
                (first - second + third - fourth) / 4,
                (first + second - third - fourth) / 4,
                (first - second - third + fourth) / 4,
            ],
            1,
        )

    def decode(self, features: Tensor) -> Tensor:
        """The pixels again."""
        mean, across, down, both = features.chunk(4, 1)
        corners = [
            mean + across + down + both,
            mean - across + down - both,
            mean + across - down - both,
            mean - across - down + both,
        ]
        return F.pixel_shuffle(torch.stack(corners, 2).flatten(1, 2), 2)


class Latents:
    """The latents of an autoencoder, not quantised: a code that flips would be a jump."""

    def __init__(self, model: Autoencoder) -> None:
        self.model, self.stride = model, model.shape.stride

    def encode(self, pixels: Tensor) -> Tensor:
        """Its latents."""
        return self.model.encode(pixels / 255)

    def decode(self, features: Tensor) -> Tensor:
        """What it makes of latents."""
        return self.model.decode(features) * 255


@lru_cache(maxsize=2)
def features_of(source: str, device: torch.device) -> Features:
    """The feature space that a text names."""
    return Haar() if source == HAAR else Latents(load_autoencoder(source).to(device))
