"""What a generator is: latents of an image that a gradient can move, and the image they stand for.

    latents, context = generator.encode(pixels, seeds)    # one row per image
    changed = into_box(generator.decode(latents, context), "straight")    # in [0, 1]

An autoencoder's latents hold the whole image; those of a parametric generator say what is done to
it, and start at "nothing", with the image itself as context. The same search moves both.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol, cast

import torch
from torch import Tensor

from stockpot.errors import BadParameterError

PixelClamp = Literal["straight", "hard"]


class Encoded(NamedTuple):
    """What stands for a batch of images."""

    latents: Tensor
    """What the search moves, one row per image."""
    context: Tensor
    """What decoding needs besides and no step changes, one row per image; may be empty rows."""


class Generator(Protocol):
    """Changes images in a way of its own."""

    name: str
    step: float
    """A step size at which a search of fifty steps changes images visibly."""
    half: bool
    """Whether it may run in mixed precision: a network may, a formula on pixels gains nothing.

    One that takes only some sizes also has `grid`, what its sides are multiples of, and may have
    `side`, at which it works best; `grid.py` resizes for it.
    """

    def to(self, device: torch.device) -> Generator:
        """The same generator on a device."""
        ...

    def encode(self, pixels: Tensor, seeds: Tensor) -> Encoded:
        """What stands for these images, with one seed per image for what is random."""
        ...

    def decode(self, latents: Tensor, context: Tensor) -> Tensor:
        """The images that latents stand for in their context; values may leave [0, 1]."""
        ...

    def clamp(self, latents: Tensor) -> Tensor:
        """The nearest latents within the range that makes sense."""
        ...

    def codes(self, latents: Tensor) -> Tensor | None:
        """The discrete code of each cell; none where latents are continuous."""
        ...

    def settled(self, latents: Tensor) -> Tensor:
        """The latents as the decoder meets them: quantised where there is a codebook."""
        ...


class Parametric:
    """A generator without weights: its latents are the strengths of changes, within limits.

    `reach` bounds every latent from below and above; decoding must give the image back at `rest`.
    """

    name = ""
    step = 0.05
    half = False
    rest = 0.0

    def __init__(self, low: float = -1.0, high: float = 1.0) -> None:
        if not low <= self.rest <= high or low == high:
            raise BadParameterError(
                f"{self.name}: expected limits around {self.rest:g}, got {low:g} to {high:g}."
            )
        self.low, self.high = low, high

    def clamp(self, latents: Tensor) -> Tensor:
        """Within the limits."""
        return latents.clamp(self.low, self.high)

    def codes(self, latents: Tensor) -> Tensor | None:
        """There are none."""
        return None

    def settled(self, latents: Tensor) -> Tensor:
        """As they are."""
        return latents


class _StraightClamp(torch.autograd.Function):
    """Clamp to [0, 1] with the gradient of the identity."""

    @staticmethod
    def forward(ctx: Any, pixels: Tensor) -> Tensor:
        return pixels.clamp(0, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


def into_box(pixels: Tensor, how: PixelClamp = "straight") -> Tensor:
    """Clamp pixels to [0, 1].

    `straight` lets the gradient pass as if nothing had been cut; `hard` stops it at the border.
    """
    if how == "hard":
        return pixels.clamp(0, 1)
    return cast(Tensor, _StraightClamp.apply(pixels))  # type: ignore[no-untyped-call]


class _EightBits(torch.autograd.Function):
    """Round to the 256 levels of a file with the gradient of the identity."""

    @staticmethod
    def forward(ctx: Any, pixels: Tensor) -> Tensor:
        return (pixels * 255).round() / 255

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


def as_saved(pixels: Tensor) -> Tensor:
    """Pixels in [0, 1] as a file of 8 bits holds them; the gradient passes as if they were exact.

    Whatever is judged or answered is about this picture, since no other can be saved.
    """
    return cast(Tensor, _EightBits.apply(pixels))  # type: ignore[no-untyped-call]
