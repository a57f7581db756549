"""Regularisation in function space: to answer as the start did (arXiv:1805.08289)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.feed import Feed
from stockpot.harden import hardeners
from stockpot.harden.counterfactual.distil import frozen, soft_gap, taught
from stockpot.harden.objective import Objective, Step
from stockpot.harden.other_images import other_images, taken
from stockpot.models.classifier import Classifier
from stockpot.types import DataRef, NonNegative

Distance = Literal["squared", "kl"]


@hardeners.register(
    "function_space",
    paper="arXiv:1805.08289",
    head="trained",
    whole="it keeps the whole model as it started",
)
def function_space(
    *, weight: NonNegative = 1.0, distance: Distance = "squared", images: DataRef = ""
) -> Objective:
    """Cross-entropy plus the distance of the model's outputs from those it started with.

    Args:
        weight: of the distance.
        distance: `squared`: half the squared difference of logits, mean over classes; `kl`: the
            divergence of the new predictions from the old ones.
        images: where the two are compared: a dataset or folder, labels unused; the training
            batch when left out.
    """
    return AsBefore(weight, distance, images)


@dataclass
class AsBefore:
    """The objective, with the model as it started."""

    weight: float
    distance: Distance
    images: str
    start: Classifier | None = None
    feed: Feed | None = None

    def begin(self, model: Classifier, data: Dataset, validation: Dataset | None) -> None:
        """Keep a copy of the model, and open the images."""
        self.start = frozen(model)
        self.feed = other_images(self.images, model) if self.images else None

    def __call__(self, step: Step) -> Tensor:
        logits = step.model(step.pixels)
        loss = F.cross_entropy(logits, step.labels)
        if not self.weight or self.start is None:
            return loss
        pixels = step.pixels
        if self.feed is not None:
            rows = torch.randint(len(self.feed), (len(step.whole),), generator=step.generator)
            pixels = taken(self.feed, step.own(rows))
            logits = step.model(pixels)
        before = taught(self.start, pixels).logits
        return loss + self.weight * output_gap(logits, before, self.distance)


def output_gap(logits: Tensor, before: Tensor, distance: Distance) -> Tensor:
    """How far answers are from those of before, mean over images."""
    if distance == "kl":
        return soft_gap(logits, before, temperature=1.0)
    return F.mse_loss(logits.float(), before.float()) / 2
