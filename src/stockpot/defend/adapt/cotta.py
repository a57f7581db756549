"""CoTTA: continual test-time adaptation (Wang et al., CVPR 2022, arXiv:2203.13591).

All weights learn from a teacher, who is their running mean and whose answers are given. Where the
model as it was given is unsure of a batch, the teacher's answers are averaged over random views.
After each step a few weights return to what they were, so that nothing is forgotten for good.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from stockpot.defend import defences
from stockpot.defend.adapt.adapting import Adapting
from stockpot.defend.adapt.learner import Learner, OptimiserName, learned, optimiser_for
from stockpot.defend.adapt.losses import cross_entropy, symmetric_cross_entropy
from stockpot.defend.adapt.views import random_view
from stockpot.models.classifier import Classifier
from stockpot.types import Count, Fraction01, Positive


@dataclass(frozen=True)
class _Settings:
    lr: float
    optimiser: OptimiserName
    momentum: float
    restore: float
    views: int
    unsure: float
    symmetric: bool


@defences.register(
    "cotta",
    paper="arXiv:2203.13591",
    adapts=True,
    presets={
        "imagenet": {
            "lr": 0.01, "optimiser": "sgd", "restore": 0.001, "unsure": 0.1, "symmetric": True,
        }
    },
)  # fmt: skip
def cotta(
    model: Classifier,
    *,
    lr: Positive = 0.001,
    optimiser: OptimiserName = "adam",
    momentum: Fraction01 = 0.999,
    restore: Fraction01 = 0.01,
    views: Count = 32,
    unsure: Fraction01 = 0.92,
    symmetric: bool = False,
) -> Classifier:
    """Learn all weights from their running mean, over random views, and restore some by chance.

    Args:
        lr: the step size.
        optimiser: `adam` or `sgd` (momentum 0.9).
        momentum: of the running mean that teaches.
        restore: the share of weights that return to what they were after each step.
        views: over which the teacher's answers are averaged.
        unsure: they are where the mean confidence of the model as it was given is below this.
        symmetric: learn by the mean of both directions of the cross-entropy, as for ImageNet.
    """
    settings = _Settings(lr, optimiser, momentum, restore, views, unsure, symmetric)
    label = (
        f"cotta(lr={lr:g}, optimiser={optimiser}, momentum={momentum:g}, restore={restore:g}, "
        f"views={views}, unsure={unsure:g}{', symmetric' if symmetric else ''})"
    )
    return Adapting(model, label, lambda inner, chance: _Cotta(inner, settings, chance))


class _Cotta(Learner):
    def __init__(self, student: Classifier, settings: _Settings, chance: Generator) -> None:
        self.anchor = deepcopy(student).requires_grad_(False)
        super().__init__(deepcopy(self.anchor))
        self.student, self.settings, self.chance = student, settings, chance
        # Those that a picture reaches: the text tower of a dual encoder gets no gradient.
        self.weights = learned(dict(student.named_parameters()))
        self.optimiser = optimiser_for(self.weights, settings.optimiser, settings.lr)

    def __call__(self, pixels: Tensor) -> Tensor:
        settings = self.settings
        pixels = pixels if pixels.is_floating_point() else pixels.float() / 255
        with torch.no_grad():
            confidence = self.anchor(pixels).softmax(1).amax(1).mean()
            taught = self._averaged(pixels) if confidence < settings.unsure else self.model(pixels)
        logits = self.student(pixels)
        loss = symmetric_cross_entropy if settings.symmetric else cross_entropy
        if self.descend(loss(logits, taught).mean(), self.optimiser):
            self._follow()
        answers: Tensor = taught
        return answers

    def _averaged(self, pixels: Tensor) -> Tensor:
        total = torch.zeros((), device=pixels.device)
        for _ in range(self.settings.views):
            view = random_view(pixels, self.chance, soften=True, padding="border")
            total = total + self.model(view)
        return total / self.settings.views

    @torch.no_grad()
    def _follow(self) -> None:
        """The teacher comes a little nearer, and some weights return to what they were."""
        for teacher, weight in zip(self.model.parameters(), self.weights.values(), strict=True):
            teacher.mul_(self.settings.momentum).add_(weight, alpha=1 - self.settings.momentum)
        if not self.settings.restore:
            return
        for given, weight in zip(self.anchor.parameters(), self.weights.values(), strict=True):
            back = torch.rand(weight.shape, generator=self.chance) < self.settings.restore
            weight.copy_(torch.where(back.to(weight.device), given, weight))
