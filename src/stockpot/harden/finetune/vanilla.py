"""Vanilla fine-tuning: tower and head, from the zero-shot head (as in arXiv:2109.01903)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from stockpot.harden import hardeners
from stockpot.harden.objective import Objective, Step
from stockpot.types import Part


@hardeners.register("vanilla", paper="arXiv:2109.01903", head="trained")
def vanilla(*, label_smoothing: Part = 0.0) -> Objective:
    """Cross-entropy for the whole model, whose head starts as the zero-shot classifier.

    A dual encoder becomes its image tower with a linear head on unit-length embeddings: rows are
    the class embeddings times the logit scale, the bias is zero, and both are trained. With
    `epochs=0` the folder that is written is the zero-shot classifier itself, ready for `wise_ft`.

    Args:
        label_smoothing: the share of each target that is spread over all classes.
    """

    def objective(step: Step) -> Tensor:
        logits = step.model(step.pixels)
        return F.cross_entropy(logits, step.labels, label_smoothing=label_smoothing)

    return objective
