"""What adaptation lowers, for each picture, from logits alone."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def entropy(logits: Tensor) -> Tensor:
    """Of the predicted distribution, in nats."""
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(1)


def marginal_entropy(logits: Tensor) -> Tensor:
    """The entropy of the mean distribution of all rows: low where they are sure of one class."""
    mean = logits.log_softmax(1).logsumexp(0) - math.log(len(logits))
    return -(mean.exp() * mean).sum()


def cross_entropy(logits: Tensor, wanted: Tensor) -> Tensor:
    """Of a distribution to the one of other logits."""
    return -(wanted.softmax(1) * logits.log_softmax(1)).sum(1)


def symmetric_cross_entropy(logits: Tensor, other: Tensor) -> Tensor:
    """The mean of both directions."""
    return (cross_entropy(logits, other) + cross_entropy(other, logits)) / 2


def soft_likelihood_ratio(logits: Tensor, clip: float = 0.99, offset: float = 1e-5) -> Tensor:
    """The negative mean log odds of the predicted distribution (arXiv:2306.00650)."""
    shares = logits.softmax(1).clamp(max=clip)
    return -(shares * torch.log(shares / (1 - shares) + offset)).sum(1)
