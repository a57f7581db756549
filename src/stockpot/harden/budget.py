"""Equal compute: as many epochs as fit into a number of floating-point operations."""

from __future__ import annotations

import torch

from stockpot.errors import BadParameterError
from stockpot.models.classifier import Classifier
from stockpot.models.forward.flops import flops_of

_PETA = 1e15
_BACKWARD = 2
"""A backward pass costs about two forward passes: one for the inputs, one for the weights."""


def epochs_within(model: Classifier, images: int, budget: float) -> int:
    """Whole epochs of one forward and backward pass per image that fit.

    Args:
        model: what is trained.
        images: that an epoch shows it.
        budget: in 10^15 floating-point operations.
    """
    one = torch.zeros(1, 3, *model.preprocess.size, device=model.device)
    epoch = flops_of(model, one) * (1 + _BACKWARD) * images
    if not epoch:
        raise BadParameterError("compute: the model's operations cannot be counted; give epochs.")
    epochs = int(budget * _PETA / epoch)
    if not epochs:
        raise BadParameterError(
            f"compute: one epoch takes {epoch / _PETA:.3g} (10^15 operations), got {budget:.3g}."
        )
    return epochs
