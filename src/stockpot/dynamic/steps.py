"""How a gradient becomes a step in the latents: Adam, its sign, or its direction.

Every image has a state of its own, so a search does not depend on who else is in the batch.
"""

from __future__ import annotations

from typing import Literal, Protocol

import torch
from torch import Tensor

StepRule = Literal["adam", "sign", "normalised"]


class Stepper(Protocol):
    """Steps that raise a loss, for images by their row number."""

    def move(self, gradient: Tensor, rows: Tensor) -> Tensor:
        """The step of unit size for these rows, given their gradients."""
        ...


class AdamSteps:
    """Adam (arXiv:1412.6980) with one state per image."""

    def __init__(self, like: Tensor, first: float = 0.9, second: float = 0.999) -> None:
        self.first, self.second = first, second
        self.means = torch.zeros_like(like)
        self.squares = torch.zeros_like(like)
        self.counts = torch.zeros(len(like), device=like.device)

    def move(self, gradient: Tensor, rows: Tensor) -> Tensor:
        """Bias-corrected mean over the root of the bias-corrected square."""
        counts = self.counts[rows] + 1
        means = torch.lerp(gradient, self.means[rows], self.first)
        squares = torch.lerp(gradient.square(), self.squares[rows], self.second)
        self.counts[rows], self.means[rows], self.squares[rows] = counts, means, squares
        age = counts.view(-1, *[1] * (gradient.ndim - 1))
        corrected = means / (1 - self.first**age)
        return corrected / ((squares / (1 - self.second**age)).sqrt() + 1e-8)


class SignSteps:
    """Every latent moves by the same amount."""

    def move(self, gradient: Tensor, rows: Tensor) -> Tensor:
        """The sign of each entry."""
        return gradient.sign()


class NormalisedSteps:
    """The gradient's direction, as long as a step of all signs would be on average."""

    def move(self, gradient: Tensor, rows: Tensor) -> Tensor:
        """Scaled to a root mean square of 1 over each image's latents."""
        size = gradient.flatten(1).square().mean(dim=1).sqrt()
        return gradient / size.clamp_min(1e-12).view(-1, *[1] * (gradient.ndim - 1))


def stepper(rule: StepRule, latents: Tensor) -> Stepper:
    """The rule of that name for latents of this shape."""
    if rule == "adam":
        return AdamSteps(latents)
    return SignSteps() if rule == "sign" else NormalisedSteps()
