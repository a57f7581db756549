"""Projected gradient descent with a fixed step, and its one-step form FGSM."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from stockpot.attack import attacks
from stockpot.attack.ascent import State, climb
from stockpot.attack.directions import random_start, steepest
from stockpot.attack.losses import CLASSES_NEEDED, CRITERIA, LossName
from stockpot.attack.methods.apgd import Start
from stockpot.attack.projection import per_image, project
from stockpot.attack.task import Outcome, Task, attempts, planned
from stockpot.attack.victim import Victim
from stockpot.errors import BadParameterError
from stockpot.types import Count, Fraction01, Natural, Norm


@attacks.register("pgd", paper="arXiv:1706.06083")
def pgd(
    victim: Victim,
    task: Task,
    *,
    steps: Natural = 40,
    step_size: float | None = None,
    loss: LossName = "ce",
    restarts: Count = 1,
    start: Start = "random",
    share: Fraction01 = 0.05,
) -> Outcome:
    """Projected gradient ascent with a fixed step size.

    Args:
        steps: gradient steps of one run.
        step_size: as a share of eps; by default 2.5 / steps, enough to cross the ball.
        loss: what is raised: `ce`, `dlr`, `margin`, or `kl` against soft labels.
        restarts: runs from different random starts, each on the images still standing.
        start: begin at a `random` point of the ball or at the `clean` image.
        share: in l_1, the share of values that a step moves.
    """
    if steps < 0 or restarts < 1 or (step_size is not None and step_size <= 0):
        raise BadParameterError(
            "pgd: expected steps >= 0, restarts >= 1 and step_size > 0, "
            f"got {steps}, {restarts} and {step_size}."
        )
    if loss == "dlr_targeted":
        raise BadParameterError("pgd: loss=dlr_targeted is for apgd; use dlr here.")
    norm, eps = task.threat.norm, task.threat.radius
    length = eps * (step_size if step_size is not None else 2.5 / max(steps, 1))
    rule = _FixedSteps(norm, eps, length, share)

    def attempt(part: Task, rows: Tensor, aim: int, restart: int) -> Outcome:
        if loss == "kl" and part.soft is None:
            raise BadParameterError("loss=kl needs soft labels (N x classes) as labels.")
        soft = (part.soft,) if loss == "kl" and part.soft is not None else ()
        first = part.images
        if start == "random":
            first = random_start(norm, first, part.seeds, eps, 1, restart)
        return climb(
            victim, rule, CRITERIA[loss], part.images, first, (part.labels, *soft),
            steps=steps, leave=task.leave,
        )  # fmt: skip

    outcome = attempts(task, attempt, restarts=restarts)
    outcome = replace(outcome, needs=CLASSES_NEEDED.get(loss, 0))
    return planned(outcome, restarts * (steps + 1) * victim.eot)


@attacks.register("fgsm", paper="arXiv:1412.6572")
def fgsm(victim: Victim, task: Task, *, loss: LossName = "ce", share: Fraction01 = 0.05) -> Outcome:
    """One gradient step of length eps from the clean image: fast and weak.

    Args:
        loss: what is raised: `ce`, `dlr`, `margin`, or `kl` against soft labels.
        share: in l_1, the share of values that the step moves.
    """
    return pgd(victim, task, steps=1, step_size=1.0, loss=loss, start="clean", share=share)


@dataclass(frozen=True)
class _FixedSteps:
    norm: Norm
    eps: float
    length: float
    share: float

    def begin(self, state: State) -> None:
        """The same step throughout."""
        state.step = torch.full_like(state.loss, self.length)
        state.share = torch.full_like(state.loss, self.share)

    def move(self, state: State, first: bool) -> Tensor:
        """One projected step."""
        step = steepest(self.norm, state.gradient, state.share)
        point = state.now + per_image(state.step, state.now) * step
        return project(self.norm, state.origin, point, self.eps)

    def windows(self, steps: int) -> list[int]:
        """Never."""
        return [steps + 1]

    def adapt(self, state: State, window: int) -> None:
        """Nothing adapts."""
