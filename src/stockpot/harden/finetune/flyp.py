"""FLYP: fine-tune like you pretrain, by the contrastive loss (Goyal et al., arXiv:2212.00638)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from stockpot.harden import hardeners
from stockpot.harden.contrastive import contrastive_loss, dual_encoder, match
from stockpot.harden.objective import Objective, Step


@hardeners.register("flyp", paper="arXiv:2212.00638", towers="both")
def flyp(*, collisions: Literal["shared", "ignored"] = "shared") -> Objective:
    """Train both towers of a dual encoder on pictures and prompts of their classes.

    Each picture meets one of its class's prompts, drawn anew in every step; the classifier that
    comes out is the zero-shot one of the changed towers.

    Args:
        collisions: pictures of one class share their prompts as right answers; `ignored` counts
            them as wrong ones, as the original does, which only suits many classes.
    """

    def objective(step: Step) -> Tensor:
        network = dual_encoder(step.model)
        drawn = network.captions.draw(step.labels, step.generator)
        images = step.model.features(step.pixels)
        texts = network.text_features(drawn.tokens, drawn.mask)
        if collisions == "shared":
            same = match(step.labels) | match(drawn.identity)
        else:
            same = torch.eye(len(step.labels), dtype=torch.bool, device=step.labels.device)
        return contrastive_loss(images, texts, network.scale(), same)

    return objective
