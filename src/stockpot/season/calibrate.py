"""What can be said of a model without labels of the target, once it is calibrated on a source."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def temperature(logits: Tensor, labels: Tensor) -> float:
    """The temperature that minimises the cross-entropy: nested searches on a log scale.

    The loss has one minimum in the inverse temperature, so that a search cannot miss it.
    """
    low, high = -5.0, 5.0  # of the logarithm: temperatures from 0.007 to 148
    logits = logits.double()
    for _ in range(6):
        points = torch.linspace(low, high, 11, dtype=torch.float64).tolist()
        losses = [float(F.cross_entropy(logits * _inverse(p), labels)) for p in points]
        best = min(range(11), key=losses.__getitem__)
        low, high = points[max(best - 1, 0)], points[min(best + 1, 10)]
    return float(torch.tensor((low + high) / 2, dtype=torch.float64).exp())


def _inverse(log_temperature: float) -> Tensor:
    return torch.tensor(-log_temperature, dtype=torch.float64).exp()


def entropy(probabilities: Tensor) -> Tensor:
    """The entropy of each row, in nats."""
    return -torch.xlogy(probabilities, probabilities).sum(dim=-1)


def atc_accuracy(source: Tensor, correct: Tensor, target: Tensor) -> Tensor:
    """Average Thresholded Confidence (arXiv:2201.04234), for each row of models.

    The threshold is where as many source images lie above it as the model has right; the estimate
    is the share of target images above it.

    Args:
        source: a confidence of each source image, higher is surer; models x images.
        correct: whether the model was right about it.
        target: the same confidence of the target images.
    """
    wrong = (~correct).sum(dim=-1, keepdim=True)
    threshold = source.sort(dim=-1).values.gather(-1, (wrong - 1).clamp(min=0))
    # A model that is right everywhere is believed down to its least sure source image.
    above = torch.where(wrong > 0, target > threshold, target >= threshold)
    return above.double().mean(dim=-1)
