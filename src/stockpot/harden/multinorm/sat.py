"""SAT: one norm for each batch, drawn at random (arXiv:2006.12135 calls it that)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.attack.threat import Norms, Radii
from stockpot.harden import hardeners
from stockpot.harden.adversarial.worst import worst
from stockpot.harden.multinorm.threats import NORMS, RADII, Steps, adversaries
from stockpot.harden.objective import Objective, Step


@hardeners.register("sat", paper="arXiv:2006.12135")
def sat(*, norms: Norms = NORMS, eps: Radii = RADII, steps: Steps = 10) -> Objective:
    """Adversarial training against one of several norms per batch, each as likely.

    Args:
        norms: such as `linf,l2,l1`.
        eps: a radius for each norm.
        steps: of the attack, or a number for each norm, such as `10,10,20`.
    """
    attacks = adversaries(norms, eps, steps)

    def objective(step: Step) -> Tensor:
        chosen = int(torch.randint(len(attacks), (), generator=step.generator))
        found = worst(step, *attacks[chosen])
        return F.cross_entropy(step.model(found.images), step.labels)

    return objective
