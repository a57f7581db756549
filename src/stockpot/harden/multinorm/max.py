"""MAX: for each image, the norm that hurts most (Tramer and Boneh, arXiv:1904.13000)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.attack.projection import per_image
from stockpot.attack.threat import Norms, Radii
from stockpot.harden import hardeners
from stockpot.harden.adversarial.worst import worst
from stockpot.harden.loop import Objective, Step
from stockpot.harden.multinorm.threats import NORMS, RADII, Steps, adversaries


@hardeners.register("max", paper="arXiv:1904.13000")
def worst_norm(*, norms: Norms = NORMS, eps: Radii = RADII, steps: Steps = 10) -> Objective:
    """Adversarial training on the worst of several norms, image by image.

    Args:
        norms: such as `linf,l2,l1`.
        eps: a radius for each norm.
        steps: of each attack, or a number for each norm, such as `10,10,20`.
    """
    attacks = adversaries(norms, eps, steps)

    def objective(step: Step) -> Tensor:
        images, loss = step.pixels, torch.full_like(step.labels, -torch.inf, dtype=torch.float32)
        for attack in attacks:
            found = worst(step, *attack)
            higher = found.loss > loss
            images = torch.where(per_image(higher, images), found.images, images)
            loss = torch.where(higher, found.loss, loss)
        return F.cross_entropy(step.model(images), step.labels)

    return objective
