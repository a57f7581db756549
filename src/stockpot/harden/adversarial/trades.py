"""TRADES: be right on the image, and say the same about everything near it (arXiv:1901.08573)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.attack.threat import Eps, threat
from stockpot.attack.victim import evaluation_mode
from stockpot.harden import hardeners
from stockpot.harden.adversarial.worst import worst
from stockpot.harden.objective import Objective, Step
from stockpot.types import Natural, NonNegative, Norm


@hardeners.register("trades", paper="arXiv:1901.08573")
def trades(
    *, norm: Norm = "linf", eps: Eps = "8/255", steps: Natural = 10, beta: NonNegative = 6.0
) -> Objective:
    """Cross-entropy on clean images plus beta times the divergence of the worst near ones.

    Args:
        norm: `linf`, `l2` or `l1`.
        eps: the radius in pixel units; a number or text such as `8/255`.
        steps: of the attack, which raises the divergence from the clean prediction.
        beta: how much agreement counts against accuracy.
    """
    ball = threat(norm, eps)

    def objective(step: Step) -> Tensor:
        with torch.no_grad(), evaluation_mode(step.model):
            belief = step.model(step.pixels).float().softmax(dim=1)
        # At the image itself the divergence has no gradient: the attack starts beside it.
        found = worst(step, ball, steps, soft=belief, start="random")
        logits = step.model(step.pixels)
        near = F.log_softmax(step.model(found.images), dim=1)
        gap = F.kl_div(near, logits.softmax(dim=1), reduction="batchmean")
        return F.cross_entropy(logits, step.labels) + beta * gap

    return objective
