"""AdvProp: adversarial images as further training data, normalised apart (arXiv:1911.09665).

Adversarial images have other statistics than clean ones. They pass through norms of their own:
scales, offsets and, of batch norms, running statistics. These are trained beside the model's own,
and the attack meets them too. The finished model has the norms of the clean images alone.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stockpot.attack.directions import random_start, steepest
from stockpot.attack.projection import project
from stockpot.attack.threat import Eps, Threat, threat
from stockpot.attack.victim import Victim, evaluation_mode
from stockpot.datasets.dataset import Dataset
from stockpot.errors import UserError
from stockpot.harden import hardeners
from stockpot.harden.adversarial.auxiliary_norms import AuxiliaryNorms
from stockpot.harden.adversarial.worst import image_seeds, precision_of
from stockpot.harden.objective import Objective, Step
from stockpot.models.classifier import Classifier
from stockpot.models.forward.folding import renewed_copy
from stockpot.types import Fraction01, Natural, Norm, Positive

_L1_SHARE = 0.05
"""In l_1, the share of values that a step moves, as in other adversarial training."""


@hardeners.register(
    "advprop",
    paper="arXiv:1911.09665",
    whole="it exchanges the norms of the model",
)
def advprop(
    *,
    norm: Norm = "linf",
    eps: Eps = "4/255",
    steps: Natural = 5,
    step_size: Positive = 0.25,
    targeted: bool = True,
    share: Fraction01 = 0.5,
) -> Objective:
    """Clean and adversarial cross-entropy; adversarial images pass through norms of their own.

    The attack is PGD from a random point. The defaults are those published for ImageNet: radius 4,
    five steps of 1 and a random other class as target.

    Args:
        norm: `linf`, `l2` or `l1`.
        eps: the radius in pixel units; a number or text such as `8/255`.
        steps: of the attack.
        step_size: of a step, as a share of eps.
        targeted: lead each image towards a random other class, or only away from its own.
        share: of the loss on adversarial images.
    """
    return AdvProp(threat(norm, eps), steps, step_size, targeted, share)


class AdvProp:
    """The objective; it keeps the auxiliary norms."""

    def __init__(
        self, ball: Threat, steps: int, step_size: float, targeted: bool, share: float
    ) -> None:
        self.ball, self.steps, self.length = ball, steps, step_size * ball.radius
        self.targeted, self.share = targeted, share
        self.norms: AuxiliaryNorms | None = None

    def begin(self, model: Classifier, data: Dataset, validation: Dataset | None) -> None:
        """Give the model its second set of norms."""
        self.norms = _second_norms(model)
        if self.targeted and len(model.classes) < 2:
            raise UserError(f"advprop: {model.origin.source} has no other class to lead to.")

    def __call__(self, step: Step) -> Tensor:
        if self.norms is None:
            self.norms = _second_norms(step.model)
        clean = F.cross_entropy(step.model(step.pixels), step.labels)
        with self.norms.in_place():
            found = self.attack(step)
            adversarial = F.cross_entropy(step.model(found), step.labels)
        return (1 - self.share) * clean + self.share * adversarial

    def attack(self, step: Step) -> Tensor:
        """The last point of PGD against the norms in place, in evaluation mode."""
        origin, norm, radius = step.pixels.detach(), self.ball.norm, self.ball.radius
        seeds = image_seeds(step)
        aim, sign = step.labels, 1.0
        if self.targeted:
            aim, sign = other_classes(step), -1.0
        if not radius or not self.steps:
            return origin

        def rise(logits: Tensor, labels: Tensor) -> Tensor:
            return sign * F.cross_entropy(logits, labels, reduction="none")

        precision = precision_of(origin)
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        moved = torch.full_like(step.labels, _L1_SHARE, dtype=torch.float32)
        point = random_start(norm, origin, seeds, radius, 1, 0)
        with evaluation_mode(step.model):
            victim = Victim(renewed_copy(step.model, origin, dtype), precision=precision)
            for _ in range(self.steps):
                slope = victim.ascend(point, rise, aim).gradient
                point = point + self.length * steepest(norm, slope, moved)
                point = project(norm, origin, point, radius)
        return point

    def parameters(self) -> list[nn.Parameter]:
        """What is trained besides the model."""
        return [] if self.norms is None else self.norms.parameters()

    def state_dict(self) -> dict[str, Any]:
        """The auxiliary norms."""
        return {} if self.norms is None else self.norms.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with saved ones."""
        if self.norms is not None:
            self.norms.load_state_dict(state)


def _second_norms(model: Classifier) -> AuxiliaryNorms:
    norms = AuxiliaryNorms(model)
    if not len(norms):
        raise UserError(
            f"advprop: {model.origin.source} has no norms, and they are what it keeps apart.",
            hint="Use `adversarial` with clean=0.5.",
        )
    return norms


def other_classes(step: Step) -> Tensor:
    """For each image a class that is not its own, all as likely."""
    count = len(step.model.classes)
    ahead = step.own(torch.randint(1, count, (len(step.whole),), generator=step.generator))
    return (step.labels + ahead.to(step.labels.device, non_blocking=True)) % count
