"""CaRot: calibrated robust fine-tuning of both towers (Oh et al., arXiv:2311.01723).

Three terms: the contrastive loss of images and prompts, a penalty that keeps the columns of the
image projection orthogonal to one another, and the divergence from a slowly moving average of the
model itself, whose answers are softer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.datasets.dataset import Dataset
from stockpot.harden import hardeners
from stockpot.harden.contrastive import contrastive_loss, described, dual_encoder, match
from stockpot.harden.counterfactual.distil import frozen
from stockpot.harden.objective import Objective, Step
from stockpot.harden.optimise import follow
from stockpot.models.classifier import Classifier
from stockpot.types import Count, NonNegative, Part


@hardeners.register(
    "carot",
    paper="arXiv:2311.01723",
    towers="both",
    whole="it keeps an average of the whole model",
)
def carot(
    *,
    orthogonality: NonNegative = 0.2,
    distillation: NonNegative = 1.5,
    decay: Part = 0.9,
    every: Count = 500,
) -> Objective:
    """Contrastive fine-tuning, with an orthogonal image projection and self-distillation.

    Args:
        orthogonality: the weight of the squared Frobenius distance of W'W from the identity, W
            being the image projection. A network without one (SigLIP) has no such term.
        distillation: the weight of the divergence from the averaged model's answers.
        decay: how much of the average stays when it follows the model.
        every: it follows after so many steps; until then it is the model as it started.
    """
    return Calibrated(orthogonality, distillation, decay, every)


@dataclass
class Calibrated:
    """The objective, with the average of the model over the steps."""

    orthogonality: float
    distillation: float
    decay: float
    every: int
    average: Classifier | None = None

    def begin(self, model: Classifier, data: Dataset, validation: Dataset | None) -> None:
        """The average begins as the model."""
        self.average = frozen(model)

    def state_dict(self) -> dict[str, Any]:
        """The averaged weights."""
        return {} if self.average is None else dict(self.average.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The averaged weights of a run that was stopped."""
        if self.average is not None:
            self.average.load_state_dict(state)

    def __call__(self, step: Step) -> Tensor:
        network = dual_encoder(step.model)
        if self.average is None:
            self.average = frozen(step.model)
        if step.number and step.number % self.every == 0:
            follow(self.average, step.model, self.decay)
        images, texts, drawn = described(step)
        same = match(step.whole.labels) | match(drawn.identity)
        loss = contrastive_loss(images, texts, network.scale(), same)
        projection = getattr(network.model, "visual_projection", None)
        if self.orthogonality and projection is not None:
            loss = loss + self.orthogonality * crookedness(projection.weight)
        if self.distillation:
            teacher = dual_encoder(self.average)
            with torch.no_grad():
                before = self.average.features(step.pixels)
                said = teacher.text_features(step.own(drawn.tokens), step.own(drawn.mask))
                advice = _pairs(step.gathered(before), step.gathered(said), teacher.scale())
            loss = loss + self.distillation * self_gap(
                _pairs(images, texts, network.scale()), advice
            )
        return loss


def crookedness(weight: Tensor) -> Tensor:
    """The squared Frobenius distance of W'W from the identity, over the smaller side of W."""
    w = weight.float()
    products = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
    return (products - torch.eye(len(products), device=w.device)).square().sum()


def self_gap(pairs: Tensor, advice: Tensor) -> Tensor:
    """KL(advice || answer) of each image over the captions and of each caption over the images."""
    gaps = [
        F.kl_div(
            own.log_softmax(dim=1), other.log_softmax(dim=1), reduction="batchmean", log_target=True
        )
        for own, other in ((pairs, advice), (pairs.T, advice.T))
    ]
    return torch.stack(gaps).sum()


def _pairs(images: Tensor, texts: Tensor, scale: Tensor) -> Tensor:
    # In bfloat16 a cosine has two digits, too few for a scale of up to 100.
    with torch.autocast(images.device.type, enabled=False):
        return scale.float() * (images.float() @ texts.float().T)
