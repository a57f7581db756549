"""An autoencoder whole: pixels in [0, 1] to latents and back."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stockpot.errors import BadDataError
from stockpot.models.autoencoder.coders import Architecture, Decoder, Encoder
from stockpot.models.autoencoder.quantiser import Codebook, GumbelQuantiser, Quantiser


class Autoencoder(nn.Module):
    """Encoder, latent and decoder; with a codebook (VQ) or with a Gaussian latent (KL)."""

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        self.shape = shape
        double = 1 if shape.codes else 2
        self.encoder = Encoder(shape)
        self.decoder = Decoder(shape)
        self.quant_conv = nn.Conv2d(shape.latent_channels * double, shape.code_size * double, 1)
        self.post_quant_conv = nn.Conv2d(shape.code_size, shape.latent_channels, 1)
        if shape.codes:
            chosen = GumbelQuantiser if shape.gumbel else Quantiser
            self.quantize: Codebook = chosen(shape.codes, shape.code_size)

    @property
    def is_quantised(self) -> bool:
        """Whether there is a codebook."""
        return self.shape.codes > 0

    def encode(self, pixels: Tensor) -> Tensor:
        """Latents before quantisation; of a Gaussian latent, its mean."""
        latents = self._encoded(pixels)
        return latents if self.is_quantised else latents.chunk(2, dim=1)[0]

    def distribution(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of a Gaussian latent."""
        mean, logarithms = self._encoded(pixels).chunk(2, dim=1)
        # As diffusers bounds the logarithm of the variance.
        return mean, (logarithms.clamp(-30, 20) / 2).exp()

    def _encoded(self, pixels: Tensor) -> Tensor:
        self.check_size(pixels)
        return torch.as_tensor(self.quant_conv(self.encoder(pixels * 2 - 1)))

    def decode(self, latents: Tensor) -> Tensor:
        """Pixels of latents as they are (quantised already, where there is a codebook)."""
        return torch.as_tensor(self.decoder(self.post_quant_conv(latents), latents)) / 2 + 0.5

    def settle(self, latents: Tensor) -> tuple[Tensor, Tensor | None]:
        """Quantise where there is a codebook: the latents to decode, and their codes."""
        if not self.is_quantised:
            return latents, None
        quantised, codes = self.quantize(latents)
        return quantised, codes

    def reconstruct(self, pixels: Tensor) -> Tensor:
        """Encode, quantise, decode, and stay within [0, 1]."""
        return self.decode(self.settle(self.encode(pixels))[0]).clamp(0, 1)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.reconstruct(pixels)

    def check_size(self, pixels: Tensor) -> None:
        """Refuse sides that the strides do not divide, which would come back another size."""
        stride = self.shape.stride
        height, width = pixels.shape[-2:]
        if height % stride or width % stride or pixels.shape[1] != self.shape.colours:
            raise BadDataError(
                f"expected images of {self.shape.colours} channels whose sides are multiples of "
                f"{stride}, got {pixels.shape[1]} x {height} x {width}.",
                hint="Resize or pad them, or choose a generator without an encoder.",
            )
