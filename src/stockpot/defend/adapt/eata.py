"""EATA: efficient test-time adaptation without forgetting (Niu et al., arXiv:2204.02610).

Pictures teach by how sure the model is of them, and only if they say something new: if their
prediction is unlike the running mean of those before. Weights that matter for pictures of training
are held back by their Fisher information, for which some such pictures are needed; without them the
method is what its authors call ETA.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.defend import defences
from stockpot.defend.adapt.adapting import Adapting
from stockpot.defend.adapt.learner import (
    Learner,
    OptimiserName,
    normalisation_weights,
    optimiser_for,
)
from stockpot.defend.adapt.losses import entropy
from stockpot.models.classifier import Classifier
from stockpot.types import Count, NonNegative, Positive

Fisher = dict[str, Tensor]


@dataclass(frozen=True)
class _Settings:
    lr: float
    optimiser: OptimiserName
    margin: float
    similarity: float
    fisher: float


@defences.register(
    "eata",
    paper="arXiv:2204.02610",
    adapts=True,
    presets={"cifar": {"lr": 0.001, "optimiser": "adam", "similarity": 0.4, "fisher": 1.0}},
)
def eata(
    model: Classifier,
    *,
    lr: Positive = 0.00025,
    optimiser: OptimiserName = "sgd",
    margin: Positive = 0.4,
    similarity: Positive = 0.05,
    fisher: NonNegative = 2000,
    source: str = "",
    images: Count = 2000,
) -> Classifier:
    """Lower the entropy of sure and unusual pictures, and hold back weights that training needs.

    Args:
        lr: the step size.
        optimiser: `sgd` (momentum 0.9) or `adam`.
        margin: pictures with more entropy than this share of the largest possible teach nothing.
        similarity: pictures whose prediction is nearer to the running mean, by cosine, do neither.
        fisher: how strongly weights are held back.
        source: data of training for it, by name or path; without it no weight is held back.
        images: how many of these are used at most.
    """
    settings = _Settings(lr, optimiser, margin, similarity, fisher if source else 0.0)
    held = f"fisher={fisher:g} on {images} of {source}" if settings.fisher else "no fisher"
    about = f"lr={lr:g}, optimiser={optimiser}, margin={margin:g}, similarity={similarity:g}"
    data = load_dataset(source, split="train", limit=images) if settings.fisher else None
    known: Fisher = {}

    def importance(inner: Classifier) -> Fisher:
        # Of the model as it was given, which it is whenever a learner is made: so once is enough.
        if data is not None and not known:
            known.update(fisher_information(inner, data))
        return known

    return Adapting(
        model, f"eata({about}, {held})", lambda inner, _: _Eata(inner, settings, importance)
    )


def fisher_information(model: Classifier, data: Dataset, batch: int = 64) -> Fisher:
    """The mean square of batch gradients of the cross-entropy to the model's own answers."""
    weights = normalisation_weights(model, "eata")
    total = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    count = 0
    with torch.enable_grad():
        for part in data.batches(batch, model.preprocess.fit):
            logits = model(part.images.to(model.device))
            loss = F.cross_entropy(logits, logits.argmax(dim=1))
            # A dual encoder has weights, those of its text tower, that pictures never reach.
            found = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
            for name, gradient in zip(weights, found, strict=True):
                if gradient is not None:
                    total[name] += gradient.square()
            count += 1
    return {name: value / max(count, 1) for name, value in total.items()}


class _Eata(Learner):
    def __init__(
        self, model: Classifier, settings: _Settings, importance: Callable[[Classifier], Fisher]
    ) -> None:
        super().__init__(model)
        self.settings = settings
        self.weights = normalisation_weights(model, "eata")
        self.given = {name: weight.detach().clone() for name, weight in self.weights.items()}
        self.fisher = importance(model)
        self.optimiser = optimiser_for(self.weights, settings.optimiser, settings.lr)
        self.threshold = settings.margin * math.log(len(model.classes))
        self.mean: Tensor | None = None

    def __call__(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.model(pixels)
        found = entropy(logits)
        taught = (found < self.threshold) & self._unusual(logits.detach())
        if not bool(taught.any()):
            return logits
        shares = logits.detach()[taught].softmax(1).mean(0)
        self.mean = shares if self.mean is None else 0.9 * self.mean + 0.1 * shares
        weights = (self.threshold - found[taught].detach()).exp()
        loss = (found[taught] * weights).mean()
        for name, importance in self.fisher.items():
            moved = (self.weights[name] - self.given[name]).square()
            loss = loss + self.settings.fisher * (importance * moved).sum()
        self.descend(loss, self.optimiser)
        return logits

    def _unusual(self, logits: Tensor) -> Tensor:
        if self.mean is None:
            return torch.ones(len(logits), dtype=torch.bool, device=logits.device)
        near = F.cosine_similarity(self.mean[None], logits.softmax(1), dim=1)
        return near.abs() < self.settings.similarity
