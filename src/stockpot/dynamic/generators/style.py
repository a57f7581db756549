"""A change of style: the statistics of feature channels move, the layout stays.

This is feature-statistics transfer (adaptive instance normalisation, arXiv:1703.06868) with the
target statistics searched for instead of taken from a second picture. The feature space is an
autoencoder's latent space, not VGG's.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.dynamic.generator import Encoded, Generator, Parametric
from stockpot.dynamic.generators import generators
from stockpot.dynamic.generators.autoencoders import ZOO
from stockpot.models.autoencoder.files import load_autoencoder
from stockpot.models.autoencoder.model import Autoencoder
from stockpot.models.autoencoder.upbringing import Upbringing, upbringing_of
from stockpot.types import AutoencoderRef, Count, NonNegative


class StyleGenerator(Parametric):
    """Two latents per channel: the logarithm of its spread's factor, and the shift of its mean."""

    name = "style"
    step = 0.05
    half = True

    def __init__(
        self,
        autoencoder: Autoencoder,
        limit: float,
        side: int | None = None,
        upbringing: Upbringing | None = None,
    ) -> None:
        super().__init__(-limit, limit)
        self.autoencoder = autoencoder
        self.upbringing = upbringing
        self.grid, self.side = autoencoder.shape.stride, side

    def to(self, device: torch.device) -> StyleGenerator:
        """Move the autoencoder."""
        self.autoencoder.to(device)
        return self

    def encode(self, pixels: Tensor, seeds: Tensor) -> Encoded:
        """Keep every channel's statistics; the context is the image's own features."""
        content = self.autoencoder.encode(pixels)
        return Encoded(content.new_zeros(len(content), 2 * content.shape[1]), content)

    def decode(self, latents: Tensor, context: Tensor) -> Tensor:
        """Give each channel of the features new statistics and decode."""
        content = context
        mean = content.mean(dim=(2, 3), keepdim=True)
        spread = content.std(dim=(2, 3), keepdim=True, correction=0)
        factor, shift = latents[:, :, None, None].chunk(2, dim=1)
        # A shift is counted in the channel's own spread, so that all channels move alike.
        moved = (content - mean) * factor.exp() + mean + shift * spread
        settled, _ = self.autoencoder.settle(moved)
        return self.autoencoder.decode(settled)


@generators.register("style", paper="arXiv:1703.06868")
def style(
    *, autoencoder: AutoencoderRef = ZOO, limit: NonNegative = 1.0, side: Count | None = None
) -> Generator:
    """Change the mean and spread of each feature channel, which alters style and keeps layout.

    Args:
        autoencoder: the feature space and the way back, as for `vqgan` or `kl`.
        limit: the largest change: of the spread as a power of e, of the mean in spreads.
        side: as for `vqgan`.
    """
    return StyleGenerator(load_autoencoder(autoencoder), limit, side, upbringing_of(autoencoder))
