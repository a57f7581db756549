"""Auto-PGD: projected ascent whose step sizes look after themselves (arXiv:2003.01690)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from stockpot.attack import attacks
from stockpot.attack.ascent import StepRule, climb
from stockpot.attack.directions import random_start
from stockpot.attack.losses import CLASSES_NEEDED, CRITERIA, LossName
from stockpot.attack.projection import project
from stockpot.attack.step_rules import DenseSteps, SparseSteps
from stockpot.attack.task import Outcome, Task, attempts, planned
from stockpot.attack.victim import Victim
from stockpot.errors import BadParameterError
from stockpot.types import Count, Fraction01, Natural

Start = Literal["random", "clean"]
Radii = Literal["single", "multi"]


@attacks.register("apgd", paper="arXiv:2003.01690")
def apgd(
    victim: Victim,
    task: Task,
    *,
    steps: Natural = 40,
    loss: LossName = "ce",
    restarts: Count = 1,
    targets: Count = 9,
    start: Start = "random",
    radii: Radii = "single",
    rho: float = 0.75,
    share: Fraction01 = 0.2,
) -> Outcome:
    """Projected gradient ascent with momentum and step sizes that adapt to each image.

    Args:
        steps: gradient steps of one run.
        loss: what is raised: `ce`, `dlr`, `dlr_targeted`, `margin`, or `kl` against soft labels.
        restarts: runs from different random starts, each on the images still standing.
        targets: for `dlr_targeted`, how many of the likeliest wrong classes are tried in turn.
        start: begin at a `random` point of the ball or at the `clean` image.
        radii: `multi` spends 30 % of the steps at three times the radius and 30 % at twice,
            which helps in l_1.
        rho: halve a step when the loss rose in no more than this share of a window.
        share: in l_1, the share of values that the first step moves.
    """
    if steps < 0 or restarts < 1 or targets < 1 or not 0 < share <= 1:
        raise BadParameterError(
            "apgd: expected steps >= 0, restarts >= 1, targets >= 1 and 0 < share <= 1, "
            f"got {steps}, {restarts}, {targets} and {share}."
        )
    aims = _aims(victim, task, loss, targets)

    def attempt(part: Task, rows: Tensor, aim: int, restart: int) -> Outcome:
        fields = tuple(field[rows] for field in aims[aim])
        place = (aim, restart)
        return _run(victim, part, loss, fields, steps, place, start, radii, rho, share)

    outcome = attempts(task, attempt, restarts=restarts, aims=len(aims))
    runs = len(aims) * restarts
    stages = len(_stages(radii, steps))
    first = 1 if loss == "dlr_targeted" else 0  # the look that chose the targets
    outcome = replace(
        outcome, queries=outcome.queries + first * victim.eot, needs=CLASSES_NEEDED.get(loss, 0)
    )
    return planned(outcome, (first + runs * (steps + stages)) * victim.eot)


def _aims(victim: Victim, task: Task, loss: LossName, targets: int) -> list[tuple[Tensor, ...]]:
    """The tensors that the loss compares logits with: one tuple, or one per target class."""
    if loss == "kl":
        if task.soft is None:
            raise BadParameterError("loss=kl needs soft labels (N x classes) as labels.")
        return [(task.labels, task.soft)]
    if loss != "dlr_targeted":
        return [(task.labels,)]
    return [(task.labels, column) for column in likely_wrong(victim, task, targets).unbind(dim=1)]


def likely_wrong(victim: Victim, task: Task, targets: int) -> Tensor:
    """The wrong classes in order of their clean logits, N x at most `targets`."""
    logits = victim.logits(task.images)
    logits = logits.scatter(1, task.labels[:, None], -torch.inf)
    return logits.argsort(dim=1, descending=True)[:, : min(targets, logits.shape[1] - 1)]


def _stages(radii: Radii, steps: int) -> list[tuple[float, int]]:
    """Radius factors with their steps."""
    if radii == "single":
        return [(1.0, steps)]
    part = math.ceil(0.3 * steps)
    return [(3.0, part), (2.0, part), (1.0, max(steps - 2 * part, 0))]


def _run(
    victim: Victim,
    task: Task,
    loss: LossName,
    fields: tuple[Tensor, ...],
    steps: int,
    place: tuple[int, int],
    start: Start,
    radii: Radii,
    rho: float,
    share: float,
) -> Outcome:
    norm, eps = task.threat.norm, task.threat.radius
    stages = _stages(radii, steps)
    first = stages[0][0] * eps
    clean = start == "clean"
    point = task.images if clean else random_start(norm, task.images, task.seeds, first, *place)
    queries = torch.zeros_like(task.labels)
    for factor, count in stages:
        radius = factor * eps
        rule: StepRule = DenseSteps(norm, radius, rho)
        if norm == "l1":
            rule = SparseSteps(radius, share, follow=len(stages) > 1)
        point = project(norm, task.images, point, radius)
        # Beyond the true radius nothing counts: no image leaves there.
        leave = task.leave and factor == 1
        new = climb(
            victim, rule, CRITERIA[loss], task.images, point, fields, steps=count, leave=leave
        )
        point, queries = new.images, queries + new.queries
    return replace(new, queries=queries)
