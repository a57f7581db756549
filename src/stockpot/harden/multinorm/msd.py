"""MSD: one attack that takes, at every step, the norm whose step helps most (arXiv:1909.04068)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.attack.directions import steepest
from stockpot.attack.losses import cross_entropy
from stockpot.attack.projection import per_image, project
from stockpot.attack.threat import Norms, Radii, Threat
from stockpot.attack.victim import Victim, evaluation_mode
from stockpot.errors import BadParameterError
from stockpot.harden import hardeners
from stockpot.harden.multinorm.threats import NORMS, RADII, members
from stockpot.harden.objective import Objective, Step
from stockpot.stages import stage
from stockpot.types import Count, Fraction01, NonNegative


@hardeners.register("msd", paper="arXiv:1909.04068")
def msd(
    *,
    norms: Norms = NORMS,
    eps: Radii = RADII,
    steps: Count = 10,
    step_size: NonNegative = 0.25,
    share: Fraction01 = 0.01,
) -> Objective:
    """Adversarial training where each attack step uses, for each image, the best norm's step.

    Args:
        norms: such as `linf,l2,l1`.
        eps: a radius for each norm.
        steps: of the attack; each looks at the model once per norm.
        step_size: of a step, as a share of the norm's eps.
        share: in l_1, the share of values that a step moves.
    """
    threats = members(norms, eps)
    if step_size <= 0 or not 0 < share <= 1:
        raise BadParameterError(
            f"msd: expected step_size > 0 and 0 < share <= 1, got {step_size} and {share}."
        )

    def objective(step: Step) -> Tensor:
        with evaluation_mode(step.model):
            images = _steepest_of_all(step, threats, steps, step_size, share)
        return F.cross_entropy(step.model(images), step.labels)

    return objective


@stage("attack")
def _steepest_of_all(
    step: Step, threats: tuple[Threat, ...], steps: int, step_size: float, share: float
) -> Tensor:
    victim = Victim(step.model)
    origin = now = best = step.pixels.detach()
    look = victim.ascend(now, cross_entropy, step.labels)
    gradient, best_loss = look.gradient, look.loss
    moved = torch.full_like(best_loss, share)
    for _ in range(steps):
        loss = torch.full_like(best_loss, -torch.inf)
        start, slope = now, gradient
        for threat in threats:
            length = step_size * threat.radius
            point = start + length * steepest(threat.norm, slope, moved)
            point = project(threat.norm, origin, point, threat.radius)
            look = victim.ascend(point, cross_entropy, step.labels)
            higher = look.loss > loss
            where = per_image(higher, now)
            now = torch.where(where, point, now)
            gradient = torch.where(where, look.gradient, gradient)
            loss = torch.where(higher, look.loss, loss)
        higher = loss > best_loss
        best = torch.where(per_image(higher, best), now, best)
        best_loss = torch.where(higher, loss, best_loss)
    return best
