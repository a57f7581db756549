"""What a way is, and the plain one: the gradient of the cross-entropy.

A climb takes the same steps, asks the same oracle and ends at the same refusal whichever way it
goes, so that the scores of two ways are about the same search.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch.nn.functional as F
from torch import Tensor

from stockpot.score.predictions import predictions

Model = Callable[[Tensor], Tensor]


class Look(NamedTuple):
    """What one look at the model gives, for each image."""

    losses: Tensor
    """Cross-entropy."""
    wrong: Tensor
    climbed: Tensor
    """What the next step is to raise."""


class Spot(NamedTuple):
    """Where the images of a batch stand before a step."""

    latents: Tensor
    seeds: Tensor
    turn: int
    step: float
    climbed: Callable[[Tensor], Tensor]
    """What the model makes of other latents of the same images."""


class Way(Protocol):
    """How a climb looks at the model and finds the next step."""

    name: str
    passes: int
    """Answers of the model for every look."""
    probes: int
    """Its answers for every step besides."""

    def look(self, model: Model, pixels: Tensor, targets: Tensor, labels: Tensor) -> Look:
        """See what the model makes of pixels.

        Args:
            model: from pixels to logits.
            pixels: the candidates.
            targets: the right column of the logits.
            labels: the class in the data's numbering.
        """
        ...

    def blind(self, spot: Spot) -> Tensor | None:
        """The direction in which to step, where it is found without a gradient."""
        ...


class Gradient:
    """The gradient of the cross-entropy, as the model gives it."""

    name = "gradient"
    passes = 1
    probes = 0

    def look(self, model: Model, pixels: Tensor, targets: Tensor, labels: Tensor) -> Look:
        """The loss is what is climbed."""
        logits = model(pixels).float()
        losses = F.cross_entropy(logits, targets, reduction="none")
        return Look(losses, predictions(logits) != targets, losses)

    def blind(self, spot: Spot) -> Tensor | None:
        """It follows the gradient."""
        return None


def margin(logits: Tensor, targets: Tensor) -> Tensor:
    """The best wrong logit above the right one, in units of each image's spread of logits.

    Whatever a model's logits are multiplied with, this is the same, and it never saturates.
    """
    own = logits.gather(1, targets[:, None])
    rival = logits.scatter(1, targets[:, None], -float("inf")).amax(dim=1)
    return (rival - own[:, 0]) / spread(logits)[:, 0]


def spread(logits: Tensor) -> Tensor:
    """The standard deviation of each image's logits, as a column without a gradient."""
    return logits.detach().std(dim=1, correction=0, keepdim=True).clamp_min(1e-30)
