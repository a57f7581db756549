"""Gradients through what has none: hard steps pass them on as if they were the identity.

Rounding, casts to whole numbers, cuts, signs and detached tensors leave the answers of a model as
they are and take its gradient away. Here the model runs as it is, every operation giving exactly
what it gives, and backwards these operations stand aside (arXiv:1802.00420). Logits that are so
large that the cross-entropy has no slope are brought to a common size first.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.attack.straight_through import StraightThrough
from stockpot.dynamic.ways.way import Look, Model, Spot, spread
from stockpot.score.predictions import predictions

_SURE = 1e-6
"""The rest of probability below which a cross-entropy has hardly a slope in single precision."""
_TINY = torch.finfo(torch.float32).tiny
_SPREAD = 3.0
"""The standard deviation that logits are brought to there."""


def _led(model: Model, pixels: Tensor) -> Tensor:
    """The model's answer with a gradient past hard steps, or without where it takes other roads."""
    try:
        with StraightThrough():
            return model(pixels).float()
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError):  # such as numbers that leave torch
        return model(pixels).float()


class StraightThroughGradient:
    """Follows the gradient past hard steps, saturated losses, probabilities and noise."""

    name = "straight_through"
    probes = 0

    def __init__(self, draws: int = 1, probabilities: bool = False) -> None:
        self.passes = draws
        self.probabilities = probabilities

    def look(self, model: Model, pixels: Tensor, targets: Tensor, labels: Tensor) -> Look:
        """The cross-entropy is climbed, of calmer logits where it has no slope."""
        logits = torch.stack([_led(model, pixels) for _ in range(self.passes)]).mean(dim=0)
        losses = F.cross_entropy(logits, targets, reduction="none")
        wrong = predictions(logits) != targets
        told = logits.clamp_min(_TINY).log() if self.probabilities else logits
        climbed = F.cross_entropy(told, targets, reduction="none")
        # Of a model that is more than sure the same answers are taken at a temperature of which a
        # slope is left.
        calm = _SPREAD * logits / spread(logits)
        slope = F.cross_entropy(calm, targets, reduction="none")
        return Look(losses, wrong, torch.where(climbed < _SURE, slope, climbed))

    def blind(self, spot: Spot) -> Tensor | None:
        """It follows a gradient."""
        return None
