"""Generators that move an autoencoder's latents: with a codebook (`vqgan`) or without (`kl`)."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.dynamic.generator import Encoded, Generator
from stockpot.dynamic.generators import generators
from stockpot.errors import BadParameterError
from stockpot.models.autoencoder.files import load_autoencoder
from stockpot.models.autoencoder.model import Autoencoder
from stockpot.models.autoencoder.upbringing import Upbringing, upbringing_of
from stockpot.types import AutoencoderRef, Count

ZOO = "small-vqgan"


class LatentGenerator:
    """The latents before quantisation move; the image is what their codes decode to."""

    half = True

    def __init__(
        self,
        autoencoder: Autoencoder,
        *,
        name: str,
        step: float,
        reach: float | None,
        side: int | None = None,
        upbringing: Upbringing | None = None,
    ) -> None:
        self.autoencoder = autoencoder
        self.upbringing = upbringing
        self.grid, self.side = autoencoder.shape.stride, side
        self.name = name
        self.step = step
        self.reach = reach

    def to(self, device: torch.device) -> LatentGenerator:
        """Move the autoencoder."""
        self.autoencoder.to(device)
        return self

    def encode(self, pixels: Tensor, seeds: Tensor) -> Encoded:
        """The encoder's output; nothing is random, and no context is needed."""
        return Encoded(self.autoencoder.encode(pixels), pixels.new_empty(len(pixels), 0))

    def decode(self, latents: Tensor, context: Tensor) -> Tensor:
        """Quantise (the gradient passes straight through) and decode."""
        settled, _ = self.autoencoder.settle(latents)
        return self.autoencoder.decode(settled)

    def clamp(self, latents: Tensor) -> Tensor:
        """Within the range of the codebook per channel, or within so many standard deviations."""
        if self.reach is None:
            return latents
        if not self.autoencoder.is_quantised:
            return latents.clamp(-self.reach, self.reach)
        bounds = self.autoencoder.quantize.bounds()
        if bounds is None:
            return latents
        low, high = (bound.view(1, -1, 1, 1) for bound in bounds)
        middle, half = (high + low) / 2, (high - low) / 2 * self.reach
        return torch.minimum(torch.maximum(latents, middle - half), middle + half)

    def codes(self, latents: Tensor) -> Tensor | None:
        """The code of each cell."""
        if not self.autoencoder.is_quantised:
            return None
        return torch.as_tensor(self.autoencoder.quantize.codes(latents))

    def settled(self, latents: Tensor) -> Tensor:
        """The codes' own vectors."""
        codes = self.codes(latents)
        return latents if codes is None else self.autoencoder.quantize.look_up(codes)


@generators.register("vqgan", paper="arXiv:2308.10632")
def vqgan(
    *, autoencoder: AutoencoderRef = ZOO, clamp: float | None = 1.0, side: Count | None = None
) -> Generator:
    """Move the latents of a vector-quantised autoencoder; an image changes when a code flips.

    Args:
        autoencoder: `small-vqgan` of the zoo, a diffusers `VQModel` folder or a pipeline with one,
            or a checkpoint file of taming-transformers or of a latent diffusion model.
        clamp: keep latents within this multiple of the codebook's range; none does not. Latents of
            a Gumbel codebook have no range and are left as they are.
        side: the shorter side at which images pass the autoencoder, such as 256; they are resized
            and brought back. By default their own, rounded up to a multiple of its stride.
    """
    model = load_autoencoder(autoencoder)
    if not model.is_quantised:
        raise BadParameterError(
            f"vqgan: {autoencoder} has no codebook.", hint="Use the generator kl for it."
        )
    seen = upbringing_of(autoencoder)
    return LatentGenerator(model, name="vqgan", step=0.01, reach=clamp, side=side, upbringing=seen)


@generators.register("kl", paper="arXiv:2112.10752")
def kl(
    *, autoencoder: AutoencoderRef, clamp: float | None = 4.0, side: Count | None = None
) -> Generator:
    """Move the mean latents of a Gaussian (VAE) autoencoder.

    Args:
        autoencoder: a diffusers `AutoencoderKL` folder or a pipeline with one, or a checkpoint file
            of its family.
        clamp: the largest absolute value of a latent; none does not clamp.
        side: as for `vqgan`.
    """
    model = load_autoencoder(autoencoder)
    if model.is_quantised:
        raise BadParameterError(
            f"kl: {autoencoder} has a codebook.", hint="Use the generator vqgan for it."
        )
    seen = upbringing_of(autoencoder)
    return LatentGenerator(model, name="kl", step=0.05, reach=clamp, side=side, upbringing=seen)
