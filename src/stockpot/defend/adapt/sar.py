"""SAR: sharpness-aware and reliable entropy minimisation (Niu et al., ICLR 2023, arXiv:2302.12400).

Made for streams on which Tent collapses: unsure pictures teach nothing, a step is taken by the
gradient a little uphill, where only flat minima are still low, and a model whose entropy has become
suspiciously small begins anew. The last quarter of the stages or blocks keeps its weights, as the
authors leave layer4 of ResNet-50 and blocks 9 to 11 of ViT-B alone.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import torch
from torch import Tensor

from stockpot.defend import defences
from stockpot.defend.adapt.adapting import Adapting
from stockpot.defend.adapt.learner import (
    Learner,
    OptimiserName,
    Weights,
    finite_gradients,
    normalisation_weights,
    optimiser_for,
)
from stockpot.defend.adapt.losses import entropy
from stockpot.models.classifier import Classifier
from stockpot.types import NonNegative, Positive


@dataclass(frozen=True)
class _Settings:
    lr: float
    optimiser: OptimiserName
    margin: float
    sharpness: float
    recovery: float


@defences.register(
    "sar",
    paper="arXiv:2302.12400",
    adapts=True,
    presets={"vit": {"lr": 0.001}, "cifar": {"lr": 0.001}},
)
def sar(
    model: Classifier,
    *,
    lr: Positive = 0.00025,
    optimiser: OptimiserName = "sgd",
    margin: Positive = 0.4,
    sharpness: NonNegative = 0.05,
    recovery: NonNegative = 0.2,
) -> Classifier:
    """Lower the entropy of sure pictures where it is flat, and begin anew before a collapse.

    Args:
        lr: the step size.
        optimiser: `sgd` (momentum 0.9) or `adam`.
        margin: pictures with more entropy than this share of the largest possible teach nothing.
        sharpness: how far uphill the gradient is taken.
        recovery: the model begins anew once the running mean of its entropy is below this; 0 never.
    """
    settings = _Settings(lr, optimiser, margin, sharpness, recovery)
    label = (
        f"sar(lr={lr:g}, optimiser={optimiser}, margin={margin:g}, sharpness={sharpness:g}, "
        f"recovery={recovery:g})"
    )
    return Adapting(model, label, lambda inner, _: _Sar(inner, settings))


class _Sar(Learner):
    def __init__(self, model: Classifier, settings: _Settings) -> None:
        super().__init__(model)
        self.settings = settings
        self.weights = early(normalisation_weights(model, "sar"))
        self.given = {name: weight.detach().clone() for name, weight in self.weights.items()}
        self.optimiser = optimiser_for(self.weights, settings.optimiser, settings.lr)
        self.threshold = settings.margin * math.log(len(model.classes))
        self.mean: float | None = None

    def __call__(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.model(pixels)
        found = entropy(logits)
        sure = found < self.threshold
        if bool(sure.any()) and self._uphill(found[sure].mean()):
            self._downhill(pixels, sure)
        self.optimiser.zero_grad()
        if self.mean is not None and self.mean < self.settings.recovery:
            # The optimiser's momentum stays, as in the authors' program.
            with torch.no_grad():
                for name, weight in self.weights.items():
                    weight.copy_(self.given[name])
            self.mean = None
        return logits

    def _uphill(self, loss: Tensor) -> bool:
        """Move the weights to where the loss is highest nearby; where they were is kept."""
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if not finite_gradients(self.optimiser):
            self.skipped += 1
            return False
        moved = [weight for weight in self.weights.values() if weight.grad is not None]
        with torch.no_grad():
            self.before = [(weight, weight.clone()) for weight in moved]
            norm = torch.stack([weight.grad.norm() for weight in moved if weight.grad is not None])
            scale = self.settings.sharpness / (norm.norm() + 1e-12)
            for weight in moved:
                weight.add_(weight.grad * scale)
        return True

    def _downhill(self, pixels: Tensor, sure: Tensor) -> None:
        """One step from where the weights were, by the gradient of where they are."""
        self.optimiser.zero_grad()
        found = entropy(self.model(pixels))[sure]
        still = found[found < self.threshold]
        if len(still):
            loss = still.mean()
            loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for weight, value in self.before:
                weight.copy_(value)
        if not len(still):
            return
        if not finite_gradients(self.optimiser):
            self.skipped += 1
            return
        self.optimiser.step()
        last = float(loss.detach())
        self.mean = last if self.mean is None else 0.9 * self.mean + 0.1 * last


def early(weights: Weights) -> Weights:
    """Without those of the last quarter of stages or blocks, and of what comes after them.

    Stages are modules in a row that differ by a number (`layer1` to `layer4`, `blocks.0` to
    `blocks.11`). The row that holds most of the weights counts; a network of fewer than four stages
    keeps all.
    """
    rows: dict[str, list[tuple[int, str]]] = {}
    for name in weights:
        for found in re.finditer(r"\d+(?=\.)", name):
            rows.setdefault(name[: found.start()], []).append((int(found.group()), name))
    whole = {row: each for row, each in rows.items() if len({n for n, _ in each}) >= 4}
    if not whole:
        return weights
    chosen = max(whole.values(), key=len)
    numbers = sorted({number for number, _ in chosen})
    kept = set(numbers[: math.ceil(len(numbers) * 3 / 4)])
    order = list(weights)
    last = max(order.index(name) for _, name in chosen)
    inside = {name: number for number, name in chosen}
    return {
        name: weight
        for place, (name, weight) in enumerate(weights.items())
        if (inside[name] in kept if name in inside else place < last)
    }
