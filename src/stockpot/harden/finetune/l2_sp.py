"""L2-SP: a penalty on the way from the starting point (Li et al., arXiv:1802.01483)."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.datasets.dataset import Dataset
from stockpot.harden import hardeners
from stockpot.harden.objective import Objective, Step
from stockpot.models.classifier import Classifier
from stockpot.types import NonNegative


@hardeners.register(
    "l2_sp",
    paper="arXiv:1802.01483",
    head="trained",
    whole="it measures weights outside of a pass",
)
def l2_sp(*, strength: NonNegative = 0.01) -> Objective:
    """Cross-entropy plus half of `strength` times the squared distance from the starting weights.

    The head starts as the zero-shot classifier, so it is held like every other weight. The loop's
    own weight_decay pulls towards zero; set it to 0 to leave this penalty alone.

    Args:
        strength: of the pull towards the start.
    """
    return StartingPoint(strength)


@dataclass
class StartingPoint:
    """The objective, with the weights it started from."""

    strength: float
    start: list[Tensor] = field(default_factory=list)

    def begin(self, model: Classifier, data: Dataset, validation: Dataset | None) -> None:
        """Keep a copy of the weights."""
        self.start = [weight.detach().clone() for weight in _trained(model)]

    def __call__(self, step: Step) -> Tensor:
        loss = F.cross_entropy(step.model(step.pixels), step.labels)
        if not self.strength or not self.start:
            return loss
        return loss + self.strength / 2 * self.distance(step.model)

    def distance(self, model: Classifier) -> Tensor:
        """The squared distance of all trained weights from where they started."""
        steps = [w - start for w, start in zip(_trained(model), self.start, strict=True)]
        return torch.stack([step.square().sum() for step in steps]).sum()


def _trained(model: Classifier) -> list[Tensor]:
    return [weight for weight in model.parameters() if weight.requires_grad]
