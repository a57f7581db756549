"""What an attack raises: one value per image, higher when the model is more wrong.

The difference-of-logits ratio (DLR) does not change when logits are scaled, which keeps its
gradient alive where cross-entropy is flat. It needs three classes, its targeted form four; with
fewer, both fall back to the plain margin, which has the same sign everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

LossName = Literal["ce", "dlr", "dlr_targeted", "margin", "kl"]
Criterion = Callable[..., Tensor]
"""From logits and per-image tensors (labels, targets) to one loss per image."""


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy with the true label."""
    return F.cross_entropy(logits, labels, reduction="none")


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """The best other logit minus the true one: positive when the model is wrong."""
    true = logits.gather(1, labels[:, None])[:, 0]
    return logits.scatter(1, labels[:, None], -torch.inf).amax(dim=1) - true


def dlr(logits: Tensor, labels: Tensor) -> Tensor:
    """The margin divided by the gap of the first and third logit."""
    if logits.shape[1] < 3:
        return margin(logits, labels)
    top = logits.topk(3, dim=1).values
    return margin(logits, labels) / (top[:, 0] - top[:, 2] + 1e-12)


def targeted_margin(logits: Tensor, labels: Tensor, targets: Tensor) -> Tensor:
    """One other logit minus the true one."""
    pair = logits.gather(1, torch.stack([targets, labels], dim=1))
    return pair[:, 0] - pair[:, 1]


def targeted_dlr(logits: Tensor, labels: Tensor, targets: Tensor) -> Tensor:
    """The margin of one class, divided by the gap of the first to the third and fourth logit."""
    gap = targeted_margin(logits, labels, targets)
    if logits.shape[1] < 4:
        return gap
    top = logits.topk(4, dim=1).values
    return gap / (top[:, 0] - (top[:, 2] + top[:, 3]) / 2 + 1e-12)


def divergence(logits: Tensor, labels: Tensor, soft: Tensor) -> Tensor:
    """KL divergence from soft labels to the model's prediction."""
    return F.kl_div(F.log_softmax(logits, dim=1), soft, reduction="none").sum(dim=1)


CRITERIA: dict[LossName, Criterion] = {
    "ce": cross_entropy,
    "dlr": dlr,
    "dlr_targeted": targeted_dlr,
    "margin": margin,
    "kl": divergence,
}
CLASSES_NEEDED: dict[LossName, int] = {"dlr": 3, "dlr_targeted": 4}
"""How many classes a loss needs to be more than the margin."""
