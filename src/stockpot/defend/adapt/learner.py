"""What learns from one stream: a model, the weights that move, and how they are moved."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from stockpot.errors import UserError
from stockpot.models.classifier import Classifier

OptimiserName = Literal["adam", "sgd"]
"""Adam with betas 0.9 and 0.999, or SGD with a momentum of 0.9; no weight decay."""

Weights = Mapping[str, nn.Parameter]


class Learner(ABC):
    """Answers the batches of one stream, in order, and learns from them."""

    def __init__(self, model: Classifier) -> None:
        self.model = model
        """Whose answers are given."""
        self.skipped = 0
        """Batches from which nothing was learned, because loss or gradients were not finite."""

    @abstractmethod
    def __call__(self, pixels: Tensor) -> Tensor:
        """The logits of a batch; the model may be another one afterwards."""

    def descend(self, loss: Tensor, optimiser: torch.optim.Optimizer) -> bool:
        """One step down a loss; none, and False, where it would lead out of the numbers."""
        optimiser.zero_grad()
        if sound := bool(loss.isfinite()):
            loss.backward()  # type: ignore[no-untyped-call]
            sound = finite_gradients(optimiser)
        if sound:
            optimiser.step()
        else:
            self.skipped += 1
        optimiser.zero_grad()
        return sound


def finite_gradients(optimiser: torch.optim.Optimizer) -> bool:
    """Whether all gradients of an optimiser's weights are numbers."""
    found = [
        weight.grad.isfinite().all()
        for group in optimiser.param_groups
        for weight in group["params"]
        if weight.grad is not None
    ]
    return bool(torch.stack(found).all()) if found else True


def normalisation_weights(model: Classifier, method: str) -> dict[str, nn.Parameter]:
    """Scales and shifts of all BatchNorm, LayerNorm and GroupNorm layers, ready to be learned."""
    found = {
        f"{name}.{own}": weight
        for name, layer in model.named_modules()
        if isinstance(layer, _BatchNorm | nn.LayerNorm | nn.GroupNorm)
        for own, weight in layer.named_parameters(recurse=False)
    }
    if not found:
        raise UserError(
            f"{method}: expected a model with normalisation layers (BatchNorm, LayerNorm or "
            f"GroupNorm), got none in {model.origin.source}."
        )
    return learned(found)


def learned(weights: Weights) -> dict[str, nn.Parameter]:
    """The same weights, told that they are to be learned."""
    for weight in weights.values():
        weight.requires_grad_(True)
    return dict(weights)


def optimiser_for(weights: Weights, name: OptimiserName, lr: float) -> torch.optim.Optimizer:
    """The optimiser of that name."""
    if name == "adam":
        return torch.optim.Adam(weights.values(), lr=lr, betas=(0.9, 0.999))
    return torch.optim.SGD(weights.values(), lr=lr, momentum=0.9)
