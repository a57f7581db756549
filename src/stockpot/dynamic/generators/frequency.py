"""A change of spectrum: every ring of spatial frequencies is weakened or strengthened."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from stockpot.dynamic.generator import Encoded, Generator, Parametric
from stockpot.dynamic.generators import generators
from stockpot.errors import BadParameterError
from stockpot.types import Count, NonNegative


class FrequencyGenerator(Parametric):
    """One latent per ring and channel: the logarithm of its gain."""

    name = "frequency"
    step = 0.05

    def __init__(self, bands: int, limit: float) -> None:
        if bands < 2:
            raise BadParameterError(f"frequency: expected bands >= 2, got {bands}.")
        super().__init__(-limit, limit)
        self.bands = bands

    def to(self, device: torch.device) -> FrequencyGenerator:
        """Nothing to move."""
        return self

    def encode(self, pixels: Tensor, seeds: Tensor) -> Encoded:
        """Every gain is 1."""
        return Encoded(pixels.new_zeros(len(pixels), 3 * self.bands), pixels)

    def decode(self, latents: Tensor, context: Tensor) -> Tensor:
        """Weigh the spectrum; gains between the middles of two rings are interpolated."""
        height, width = context.shape[-2:]
        gains = latents.float().view(-1, 3, self.bands)
        rings = _rings(self.bands, height, width, context.device)
        logarithm = (gains @ rings).view(-1, 3, height, width // 2 + 1)
        spectrum = torch.fft.rfft2(context.float()) * logarithm.exp()
        return torch.as_tensor(torch.fft.irfft2(spectrum, s=(height, width)))


@lru_cache(maxsize=16)
def _rings(bands: int, height: int, width: int, device: torch.device) -> Tensor:
    """How much each ring counts at each frequency, as a matrix: one product for all images."""
    with torch.inference_mode(False):
        up = torch.fft.fftfreq(height, device=device)
        across = torch.fft.rfftfreq(width, device=device)
        radius = (up[:, None].square() + across.square()).sqrt().flatten()
        place = radius / radius.max() * (bands - 1)
        distance = (place - torch.arange(bands, device=device)[:, None]).abs()
        # The mean brightness is no spatial frequency: it stays.
        return torch.as_tensor((1 - distance).clamp_min(0) * (radius > 0))


@generators.register("frequency", holds=("defocus_blur", "gaussian_blur"))
def frequency(*, bands: Count = 8, limit: NonNegative = 1.5) -> Generator:
    """Weaken or strengthen rings of spatial frequencies: blur, sharpen, and between.

    Args:
        bands: rings from the lowest to the highest frequency, for each colour channel.
        limit: the largest absolute logarithm of a gain.
    """
    return FrequencyGenerator(bands, limit)
