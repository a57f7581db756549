"""FLYP: fine-tune like you pretrain, by the contrastive loss (Goyal et al., arXiv:2212.00638)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from stockpot.harden import hardeners
from stockpot.harden.contrastive import contrastive_loss, described, dual_encoder, match
from stockpot.harden.objective import Objective, Step


@hardeners.register(
    "flyp",
    paper="arXiv:2212.00638",
    towers="both",
    whole="it asks the towers apart from one another",
)
def flyp(*, collisions: Literal["shared", "ignored"] = "shared") -> Objective:
    """Train both towers of a dual encoder on pictures and prompts of their classes.

    Each picture meets one of its class's prompts, drawn anew in every step; the classifier that
    comes out is the zero-shot one of the changed towers.

    Args:
        collisions: pictures of one class share their prompts as right answers; `ignored` counts
            them as wrong ones, as the original does, which only suits many classes.
    """

    def objective(step: Step) -> Tensor:
        pairs = described(step)
        labels = step.whole.labels
        if collisions == "shared":
            same = match(labels) | match(pairs.drawn.identity)
        else:
            same = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
        return contrastive_loss(pairs.images, pairs.texts, dual_encoder(step.model).scale(), same)

    return objective
