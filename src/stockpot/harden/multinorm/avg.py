"""AVG: the mean of the losses under several norms (Tramer and Boneh, arXiv:1904.13000)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.attack.threat import Norms, Radii
from stockpot.harden import hardeners
from stockpot.harden.adversarial.worst import worst
from stockpot.harden.loop import Objective, Step
from stockpot.harden.multinorm.threats import NORMS, RADII, members
from stockpot.types import Count


@hardeners.register("avg", paper="arXiv:1904.13000")
def average(*, norms: Norms = NORMS, eps: Radii = RADII, steps: Count = 10) -> Objective:
    """Adversarial training on the mean of the losses under several norms.

    Args:
        norms: such as `linf,l2,l1`.
        eps: a radius for each norm.
        steps: of each attack.
    """
    threats = members(norms, eps)

    def objective(step: Step) -> Tensor:
        losses = [
            F.cross_entropy(step.model(worst(step, threat, steps).images), step.labels)
            for threat in threats
        ]
        return torch.stack(losses).mean()

    return objective
