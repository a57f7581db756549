"""AdvProp: adversarial images as further training data, normalised apart (arXiv:1911.09665).

Adversarial images shift the statistics that batch norms see. Here each kind of image is normalised
by its own batch's statistics, and only clean images move the running statistics that the finished
network uses. Scales and offsets are shared by both, so that the network keeps its architecture.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from stockpot.attack.threat import Eps, threat
from stockpot.harden import hardeners
from stockpot.harden.adversarial.worst import worst
from stockpot.harden.loop import Objective, Step
from stockpot.harden.optimise import apart
from stockpot.types import Fraction01, Natural, Norm


@hardeners.register("advprop", paper="arXiv:1911.09665")
def advprop(
    *, norm: Norm = "linf", eps: Eps = "4/255", steps: Natural = 5, share: Fraction01 = 0.5
) -> Objective:
    """Clean and adversarial cross-entropy, with batch norms that see each kind of image apart.

    Args:
        norm: `linf`, `l2` or `l1`.
        eps: the radius in pixel units; a number or text such as `8/255`.
        steps: of the attack.
        share: of the loss on adversarial images.
    """
    ball = threat(norm, eps)

    def objective(step: Step) -> Tensor:
        found = worst(step, ball, steps)
        clean = F.cross_entropy(step.model(step.pixels), step.labels)
        with apart(step.model):
            adversarial = F.cross_entropy(step.model(found.images), step.labels)
        return (1 - share) * clean + share * adversarial

    return objective
