"""How a gradient becomes a step in the latents: Adam, its sign, or its direction.

Every image has a state of its own, so a search does not depend on who else is in the batch.
"""

from __future__ import annotations

from typing import Literal, Protocol

import torch
from torch import Tensor

StepRule = Literal["adam", "sign", "normalised"]


class Stepper(Protocol):
    """Steps that raise a loss, one row per image of the batch."""

    def move(self, gradient: Tensor, taken: Tensor) -> Tensor:
        """The step of unit size for each gradient; only images that take it remember it."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows only."""
        ...


class AdamSteps:
    """Adam (arXiv:1412.6980) with one state per image."""

    def __init__(self, like: Tensor, first: float = 0.9, second: float = 0.999) -> None:
        self.first, self.second = first, second
        self.means = torch.zeros_like(like)
        self.squares = torch.zeros_like(like)
        self.counts = torch.zeros(len(like), device=like.device)

    def move(self, gradient: Tensor, taken: Tensor) -> Tensor:
        """Bias-corrected mean over the root of the bias-corrected square."""
        shape = (-1, *[1] * (gradient.ndim - 1))
        means = torch.lerp(gradient, self.means, self.first)
        squares = torch.lerp(gradient.square(), self.squares, self.second)
        age = (self.counts + 1).view(shape)
        mask = taken.view(shape)
        self.means = torch.where(mask, means, self.means)
        self.squares = torch.where(mask, squares, self.squares)
        self.counts = self.counts + taken
        corrected = means / (1 - self.first**age)
        return corrected / ((squares / (1 - self.second**age)).sqrt() + 1e-8)

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows only."""
        self.means, self.squares = self.means[rows], self.squares[rows]
        self.counts = self.counts[rows]


class SignSteps:
    """Every latent moves by the same amount."""

    def move(self, gradient: Tensor, taken: Tensor) -> Tensor:
        """The sign of each entry."""
        return gradient.sign()

    def keep(self, rows: Tensor) -> None:
        """There is nothing to remember."""


class NormalisedSteps:
    """The gradient's direction, as long as a step of all signs would be on average."""

    def move(self, gradient: Tensor, taken: Tensor) -> Tensor:
        """Scaled to a root mean square of 1 over each image's latents."""
        size = gradient.flatten(1).square().mean(dim=1).sqrt()
        return gradient / size.clamp_min(1e-12).view(-1, *[1] * (gradient.ndim - 1))

    def keep(self, rows: Tensor) -> None:
        """There is nothing to remember."""


def stepper(rule: StepRule, latents: Tensor) -> Stepper:
    """The rule of that name for latents of this shape."""
    if rule == "adam":
        return AdamSteps(latents)
    return SignSteps() if rule == "sign" else NormalisedSteps()
