"""Mixtures of corruptions: how much of each benchmark corruption an image gets."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stockpot.corrupt import corruptions as known_corruptions
from stockpot.corrupt.apply import corrupt
from stockpot.corrupt.ranges import CorruptionNames, Severity
from stockpot.dynamic.generator import Encoded, Generator, Parametric
from stockpot.dynamic.generators import generators
from stockpot.errors import BadParameterError

DEFAULT = (
    "gaussian_noise",
    "defocus_blur",
    "fog",
    "contrast",
    "pixelate",
    "jpeg_compression",
)


class MixtureGenerator(Parametric):
    """One latent per corruption: its share of the mixture; the rest is the image itself.

    The corrupted copies are made once per image, so a search costs a weighted sum per step.
    """

    name = "mixture"
    step = 0.05

    def __init__(self, names: tuple[str, ...], severity: int, profile: str) -> None:
        super().__init__(0.0, 1.0)
        for name in names:
            known_corruptions.get(name)
        if not names:
            raise BadParameterError("mixture: expected at least one corruption.")
        self.names, self.severity, self.profile = names, severity, profile

    def to(self, device: torch.device) -> MixtureGenerator:
        """Nothing to move."""
        return self

    def encode(self, pixels: Tensor, seeds: Tensor) -> Encoded:
        """No corruption; the context is the image and its corrupted copies."""
        settings: dict[str, Any] = {"seed": seeds.tolist(), "profile": self.profile}
        copies = [corrupt(pixels, name, self.severity, **settings) for name in self.names]
        shares = pixels.new_zeros(len(pixels), len(self.names))
        return Encoded(shares, torch.stack([pixels, *copies], dim=1))

    def decode(self, latents: Tensor, context: Tensor) -> Tensor:
        """Move towards the copies by their shares, which together are at most 1."""
        shares = latents / latents.sum(dim=1, keepdim=True).clamp_min(1)
        pixels, copies = context[:, 0], context[:, 1:]
        return pixels + torch.einsum("nk,nkchw->nchw", shares, copies - pixels[:, None])


@generators.register("mixture")
def mixture(
    *, corruptions: CorruptionNames = DEFAULT, severity: Severity = 4, profile: str = "auto"
) -> Generator:
    """Blend an image with corrupted copies of itself.

    Args:
        corruptions: names from `stockpot list corruptions`.
        severity: of the copies, 1 to 5.
        profile: the corruptions' constants, such as `imagenet`, or `auto` by size.
    """
    return MixtureGenerator(corruptions, severity, profile)
