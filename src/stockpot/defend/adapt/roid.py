"""ROID: weight ensembling, diversity weighting and prior correction (arXiv:2306.00650).

Marsden, Doebler and Yang, Universal test-time adaptation (WACV 2024). Pictures of which the model
is sure, and whose prediction is unlike the running mean, teach by the soft likelihood ratio and by
the agreement with a random view; the weights are drawn back to the given ones after every step; and
answers are corrected by how often each class was predicted in the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from stockpot.defend import defences
from stockpot.defend.adapt.adapting import Adapting
from stockpot.defend.adapt.learner import (
    Learner,
    OptimiserName,
    normalisation_weights,
    optimiser_for,
)
from stockpot.defend.adapt.losses import entropy, soft_likelihood_ratio, symmetric_cross_entropy
from stockpot.defend.adapt.views import random_view
from stockpot.models.classifier import Classifier
from stockpot.types import Fraction01, Positive

Correction = Literal["logits", "probabilities", "none"]


@dataclass(frozen=True)
class _Settings:
    lr: float
    optimiser: OptimiserName
    ensembling: float
    diversity: float
    temperature: float
    correction: Correction


@defences.register(
    "roid",
    paper="arXiv:2306.00650",
    adapts=True,
    presets={"imagenet": {"optimiser": "sgd", "lr": 0.00025}},
)
def roid(
    model: Classifier,
    *,
    lr: Positive = 0.001,
    optimiser: OptimiserName = "adam",
    ensembling: Fraction01 = 0.99,
    diversity: Fraction01 = 0.9,
    temperature: Positive = 1 / 3,
    correction: Correction = "logits",
) -> Classifier:
    """Learn from sure and unusual pictures and a view of each, drawn back to the given weights.

    Args:
        lr: the step size.
        optimiser: `adam` or `sgd` (momentum 0.9).
        ensembling: what is kept of the learned weights after each step; the rest are the given.
        diversity: the momentum of the running mean of predictions.
        temperature: of the weights of pictures.
        correction: by the predicted share of each class: of `logits` as the authors' program does,
            which says nothing of confidence, of `probabilities`, or `none`.
    """
    settings = _Settings(lr, optimiser, ensembling, diversity, temperature, correction)
    label = (
        f"roid(lr={lr:g}, optimiser={optimiser}, ensembling={ensembling:g}, "
        f"diversity={diversity:g}, temperature={temperature:g}, correction={correction})"
    )
    return Adapting(model, label, lambda inner, chance: _Roid(inner, settings, chance))


class _Roid(Learner):
    def __init__(self, model: Classifier, settings: _Settings, chance: Generator) -> None:
        super().__init__(model)
        self.settings, self.chance = settings, chance
        self.weights = normalisation_weights(model, "roid")
        self.given = {name: weight.detach().clone() for name, weight in self.weights.items()}
        self.optimiser = optimiser_for(self.weights, settings.optimiser, settings.lr)
        count = len(model.classes)
        self.mean = torch.full((count,), 1 / count, device=model.device)

    def __call__(self, pixels: Tensor) -> Tensor:
        pixels = pixels if pixels.is_floating_point() else pixels.float() / 255
        logits: Tensor = self.model(pixels)
        weights, kept = self._weights(logits.detach())
        loss = (soft_likelihood_ratio(logits[kept]) * weights[kept]).sum()
        view = random_view(pixels[kept], self.chance, soften=False, padding="reflection")
        agreement = symmetric_cross_entropy(self.model(view), logits[kept])
        loss = (loss + (agreement * weights[kept]).sum()) / len(pixels)
        if self.descend(loss, self.optimiser):
            with torch.no_grad():
                for name, weight in self.weights.items():
                    weight.lerp_(self.given[name], 1 - self.settings.ensembling)
        return self._corrected(logits.detach())

    def _weights(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """What each picture counts, and which count at all."""
        shares = logits.softmax(1)
        unusual = _spread(1 - F.cosine_similarity(self.mean[None], shares, dim=1))
        kept = ~(unusual < unusual.mean())
        sure = _spread(-entropy(logits))
        momentum, now = self.settings.diversity, shares.mean(0)
        if bool(now.isfinite().all()):
            self.mean = momentum * self.mean + (1 - momentum) * now
        return torch.exp(unusual * sure / self.settings.temperature), kept

    def _corrected(self, logits: Tensor) -> Tensor:
        if self.settings.correction == "none":
            return logits
        prior = logits.softmax(1).mean(0)
        count = logits.shape[1]
        smooth = max(1 / len(logits), 1 / count) / prior.max()
        prior = (prior + smooth) / (1 + smooth * count)
        if self.settings.correction == "logits":
            return logits * prior
        return logits.log_softmax(1) + prior.log()


def _spread(values: Tensor) -> Tensor:
    """From 0 for the least to 1 for the most; all 1 where they are equal, as in a batch of one."""
    low, high = values.min(), values.max()
    return torch.ones_like(values) if high == low else (values - low) / (high - low)
