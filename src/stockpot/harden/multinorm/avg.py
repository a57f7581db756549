"""AVG: the mean of the losses under several norms (Tramer and Boneh, arXiv:1904.13000)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.attack.threat import Norms, Radii
from stockpot.harden import hardeners
from stockpot.harden.adversarial.worst import worst
from stockpot.harden.loop import Objective, Step
from stockpot.harden.multinorm.threats import NORMS, RADII, Steps, adversaries


@hardeners.register("avg", paper="arXiv:1904.13000")
def average(*, norms: Norms = NORMS, eps: Radii = RADII, steps: Steps = 10) -> Objective:
    """Adversarial training on the mean of the losses under several norms.

    Args:
        norms: such as `linf,l2,l1`.
        eps: a radius for each norm.
        steps: of each attack, or a number for each norm, such as `10,10,20`.
    """
    attacks = adversaries(norms, eps, steps)

    def objective(step: Step) -> Tensor:
        losses = [
            F.cross_entropy(step.model(worst(step, *attack).images), step.labels)
            for attack in attacks
        ]
        return torch.stack(losses).mean()

    return objective
