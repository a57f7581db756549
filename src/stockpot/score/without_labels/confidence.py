"""How sure answers are, and the accuracy that this foretells, for one model or many at once."""

from __future__ import annotations

import torch
from torch import Tensor


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


def doc_accuracy(source: Tensor, correct: Tensor, target: Tensor) -> Tensor:
    """Difference of confidences (arXiv:2107.03315): as much is lost as confidence is.

    Args:
        source: the highest probability of each source image; models x images.
        correct: whether the model was right about it.
        target: the highest probability of each target image.
    """
    lost = source.double().mean(dim=-1) - target.double().mean(dim=-1)
    return (correct.double().mean(dim=-1) - lost).clamp(0.0, 1.0)


def nuclear_norm(probabilities: Tensor) -> Tensor:
    """The nuclear norm of the table of predictions, 1 at most (arXiv:2302.01094).

    It is high where answers are sure and spread over all classes. It orders models and sets; it is
    no accuracy.

    Args:
        probabilities: images x classes, or models x images x classes.
    """
    table = probabilities.double()
    images, classes = table.shape[-2:]
    # The singular values are roots of the eigenvalues of a small matrix.
    square = table.mT @ table if classes <= images else table @ table.mT
    values = torch.linalg.eigvalsh(square).clamp_min(0.0).sqrt().sum(dim=-1)
    most = float(min(images, classes) * images) ** 0.5
    found: Tensor = values / most
    return found
