"""DeepAugment: pictures from an image-to-image network that is disturbed (arXiv:2006.16241).

The published one disturbs the weights and activations of a compression and a super-resolution
network. Here it is the decoder of an autoencoder: an image is encoded, and decoded while the
channels of a few layers, drawn anew for every step, are scaled, dropped, negated or exchanged, each
image in its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from stockpot.datasets.dataset import Dataset
from stockpot.harden import hardeners
from stockpot.harden.objective import Objective, Step
from stockpot.harden.other_images import of_size
from stockpot.models.autoencoder.files import load_autoencoder
from stockpot.models.autoencoder.model import Autoencoder
from stockpot.models.classifier import Classifier
from stockpot.types import AutoencoderRef, Count, Fraction01, NonNegative

ZOO = "small-vqgan"


@hardeners.register("deep_augment", paper="arXiv:2006.16241")
def deep_augment(
    *,
    autoencoder: AutoencoderRef = ZOO,
    share: Fraction01 = 0.5,
    layers: Count = 2,
    channels: Fraction01 = 0.1,
    strength: NonNegative = 0.5,
) -> Objective:
    """Cross-entropy on images of which some were decoded by a disturbed autoencoder.

    Args:
        autoencoder: as for the generator `vqgan`, or a Gaussian one.
        share: of the images that are decoded so; the others stay clean.
        layers: of the decoder that are disturbed in a step.
        channels: the share of a layer's channels that are dropped, negated or exchanged.
        strength: the standard deviation of the factors of scaled channels around 1.
    """
    return Disturbed(load_autoencoder(autoencoder), share, layers, channels, strength)


@dataclass
class Disturbed:
    """The objective, with its autoencoder."""

    autoencoder: Autoencoder
    share: float
    layers: int
    channels: float
    strength: float

    def begin(self, model: Classifier, data: Dataset, validation: Dataset | None) -> None:
        """Bring the autoencoder to the model's device; it never learns."""
        self.autoencoder.to(model.device).eval().requires_grad_(False)

    def __call__(self, step: Step) -> Tensor:
        n = len(step.whole)
        chosen = torch.randperm(n, generator=step.generator)[: round(self.share * n)]
        pixels = step.pixels
        if len(chosen):
            # Drawn for all that are chosen, of which this process decodes its own.
            place = torch.full((n,), -1).scatter(0, chosen, torch.arange(len(chosen)))
            place = step.own(place)
            here = (place >= 0).nonzero()[:, 0].to(pixels.device, non_blocking=True)
            drawn = Drawn(len(chosen), place[place >= 0], step.generator)
            pixels = pixels.clone()
            if len(here):
                pixels[here] = self.decoded(step.pixels[here], drawn)
        return F.cross_entropy(step.model(pixels), step.labels)

    @torch.no_grad()
    def decoded(self, pixels: Tensor, drawn: Drawn) -> Tensor:
        """The same images, as the disturbed decoder gives them."""
        stride = self.autoencoder.shape.stride
        height, width = (-(-side // stride) * stride for side in pixels.shape[-2:])
        fitting = of_size(pixels, pixels.new_empty(1, 1, height, width))
        latents, _ = self.autoencoder.settle(self.autoencoder.encode(fitting))
        with disturbed(self._layers(drawn.generator), drawn, self._change):
            made = self.autoencoder.decode(latents)
        return of_size(made.clamp(0, 1), pixels)

    def _layers(self, generator: Generator) -> list[nn.Conv2d]:
        every = [m for m in self.autoencoder.decoder.modules() if isinstance(m, nn.Conv2d)]
        inner = every[:-1]  # the last one gives the colours themselves
        drawn = torch.randperm(len(inner), generator=generator)[: self.layers]
        return [inner[int(index)] for index in drawn]

    def _change(self, n: int, channels: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """A factor for each image and channel, and which channel comes in its place."""
        kind = torch.randint(4, (n, 1), generator=generator)
        factor = 1 + self.strength * torch.randn(n, channels, generator=generator)
        hit = torch.rand(n, channels, generator=generator) < self.channels
        order = torch.rand(n, channels, generator=generator).argsort(dim=1)
        ones = torch.ones(n, channels)
        factor = torch.where(kind == 0, factor, ones)
        factor = torch.where((kind == 1) & hit, 0.0, factor)
        factor = torch.where((kind == 2) & hit, -1.0, factor)
        own = torch.arange(channels).expand(n, channels)
        return factor, torch.where((kind == 3) & hit, order, own)


class Drawn(NamedTuple):
    """For how many images changes are drawn, and which of them are wanted."""

    n: int
    rows: Tensor
    generator: Generator


Change = Callable[[int, int, Generator], tuple[Tensor, Tensor]]


@contextmanager
def disturbed(layers: list[nn.Conv2d], drawn: Drawn, change: Change) -> Iterator[None]:
    """Inside, what these layers give has its channels scaled and exchanged."""

    def hook(layer: nn.Conv2d) -> Callable[..., Tensor]:
        factor, source = (
            values[drawn.rows] for values in change(drawn.n, layer.out_channels, drawn.generator)
        )

        def scaled(_: Any, __: Any, maps: Tensor) -> Tensor:
            rows = torch.arange(len(maps), device=maps.device)[:, None]
            taken = maps[rows, source.to(maps.device)]
            return taken * factor.to(maps)[:, :, None, None]

        return scaled

    handles = [layer.register_forward_hook(hook(layer)) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
