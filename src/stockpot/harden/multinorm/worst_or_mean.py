"""MAX and AVG: every norm attacks every image (Tramer and Boneh, arXiv:1904.13000).

MAX trains on the norm that hurts an image most, AVG on the mean of the losses under all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.attack.projection import per_image
from stockpot.attack.task import Outcome
from stockpot.attack.threat import Norms, Radii
from stockpot.harden import hardeners
from stockpot.harden.adversarial.worst import worst
from stockpot.harden.multinorm.threats import NORMS, RADII, Adversary, Steps, adversaries
from stockpot.harden.objective import Objective, Step


@hardeners.register("max", paper="arXiv:1904.13000")
def worst_norm(*, norms: Norms = NORMS, eps: Radii = RADII, steps: Steps = 10) -> Objective:
    """Adversarial training on the worst of several norms, image by image.

    Args:
        norms: such as `linf,l2,l1`.
        eps: a radius for each norm.
        steps: of each attack, or a number for each norm, such as `10,10,20`.
    """
    return WorstNorm(adversaries(norms, eps, steps))


@hardeners.register("avg", paper="arXiv:1904.13000")
def average(*, norms: Norms = NORMS, eps: Radii = RADII, steps: Steps = 10) -> Objective:
    """Adversarial training on the mean of the losses under several norms.

    Args:
        norms: such as `linf,l2,l1`.
        eps: a radius for each norm.
        steps: of each attack, or a number for each norm, such as `10,10,20`.
    """
    return MeanOfNorms(adversaries(norms, eps, steps))


@dataclass(frozen=True)
class AllNorms:
    """Every norm attacks every image, from the image itself, so that nothing is drawn."""

    attacks: tuple[Adversary, ...]
    same_every_step = True

    def found(self, step: Step) -> Iterator[Outcome]:
        """What each attack in turn makes of the batch."""
        return (worst(step, *attack) for attack in self.attacks)


class WorstNorm(AllNorms):
    """The loss of the image that hurts most."""

    def __call__(self, step: Step) -> Tensor:
        images, loss = step.pixels, torch.full_like(step.labels, -torch.inf, dtype=torch.float32)
        for found in self.found(step):
            higher = found.loss > loss
            images = torch.where(per_image(higher, images), found.images, images)
            loss = torch.where(higher, found.loss, loss)
        return F.cross_entropy(step.model(images), step.labels)


class MeanOfNorms(AllNorms):
    """The mean of the losses."""

    def __call__(self, step: Step) -> Tensor:
        losses = [
            F.cross_entropy(step.model(found.images), step.labels) for found in self.found(step)
        ]
        return torch.stack(losses).mean()
