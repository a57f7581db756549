"""Tent: entropy minimisation in the normalisation layers (Wang et al., arXiv:2006.10726).

The answers to a batch are those of the forward pass from which its entropy is taken: the step that
follows helps the next batch. LayerNorm and GroupNorm are adapted as BatchNorm is, as later work
does.
"""

from __future__ import annotations

from torch import Tensor

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
from stockpot.types import Count, Positive


@defences.register(
    "tent",
    paper="arXiv:2006.10726",
    adapts=True,
    presets={"imagenet": {"optimiser": "sgd", "lr": 0.00025}},
)
def tent(
    model: Classifier, *, lr: Positive = 0.001, optimiser: OptimiserName = "adam", steps: Count = 1
) -> Classifier:
    """Lower the entropy of each batch by the scales and shifts of normalisation layers.

    Args:
        lr: the step size.
        optimiser: `adam` or `sgd` (momentum 0.9).
        steps: steps for each batch; the answers are those before the last of them.
    """
    label = f"tent(lr={lr:g}, optimiser={optimiser}, steps={steps})"
    return Adapting(model, label, lambda inner, _: _Tent(inner, lr, optimiser, steps))


class _Tent(Learner):
    def __init__(self, model: Classifier, lr: float, optimiser: OptimiserName, steps: int) -> None:
        super().__init__(model)
        self.optimiser = optimiser_for(normalisation_weights(model, "tent"), optimiser, lr)
        self.steps = steps

    def __call__(self, pixels: Tensor) -> Tensor:
        for _ in range(self.steps):
            logits: Tensor = self.model(pixels)
            self.descend(entropy(logits).mean(), self.optimiser)
        return logits
