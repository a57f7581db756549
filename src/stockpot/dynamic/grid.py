"""Images of any size for generators that take only some: resized to their grid, and back.

An autoencoder takes sides that its stride divides, and has a size at which it is at its best. The
search sees images of the model's size only.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.dynamic.generator import Encoded, Generator
from stockpot.types import ImageSize


def working_size(generator: Generator, size: ImageSize) -> ImageSize:
    """The size at which a generator works on images of a size."""
    # Generators of other packages that say nothing of a grid take every size.
    grid: int = getattr(generator, "grid", 1)
    side: int | None = getattr(generator, "side", None)
    scale = side / min(size) if side else 1.0
    return ImageSize(*(-(-round(scale * each) // grid) * grid for each in size))


def on_its_grid(generator: Generator, size: ImageSize) -> Generator:
    """The generator for images of this size: itself where it takes them as they are."""
    inner = working_size(generator, size)
    return generator if inner == size else Resized(generator, size, inner)


class Resized:
    """A generator between two changes of size."""

    def __init__(self, generator: Generator, outer: ImageSize, inner: ImageSize) -> None:
        self.generator, self.outer, self.inner = generator, outer, inner
        self.name, self.step, self.half = generator.name, generator.step, generator.half

    def to(self, device: torch.device) -> Resized:
        """Move the generator."""
        return Resized(self.generator.to(device), self.outer, self.inner)

    def encode(self, pixels: Tensor, seeds: Tensor) -> Encoded:
        """Of the resized images."""
        return self.generator.encode(_resized(pixels, self.inner).clamp(0, 1), seeds)

    def decode(self, latents: Tensor, context: Tensor) -> Tensor:
        """Back at the images' own size."""
        return _resized(self.generator.decode(latents, context), self.outer)

    def clamp(self, latents: Tensor) -> Tensor:
        """As the generator does."""
        return self.generator.clamp(latents)

    def codes(self, latents: Tensor) -> Tensor | None:
        """As the generator does."""
        return self.generator.codes(latents)

    def settled(self, latents: Tensor) -> Tensor:
        """As the generator does."""
        return self.generator.settled(latents)


def _resized(pixels: Tensor, size: ImageSize) -> Tensor:
    # In full precision: not every device resizes in bfloat16.
    return F.interpolate(pixels.float(), size=tuple(size), mode="bicubic", antialias=True)
