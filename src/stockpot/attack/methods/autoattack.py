"""AutoAttack: a fixed sequence of attacks, each on the images that are still standing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from stockpot.attack import attacks
from stockpot.attack.losses import margin
from stockpot.attack.methods.apgd import apgd
from stockpot.attack.methods.fab import fab
from stockpot.attack.methods.square import square
from stockpot.attack.task import Outcome, Task, absorb, planned, untouched
from stockpot.attack.victim import Victim
from stockpot.types import Count, Natural

Version = Literal["standard", "plus", "rand"]
Stage = Callable[[Victim, Task], Outcome]


@attacks.register("autoattack", paper="arXiv:2003.01690")
def autoattack(
    victim: Victim,
    task: Task,
    *,
    version: Version = "standard",
    steps: Natural = 100,
    queries: Count = 5000,
    patience: Natural = 20,
    eot: Count = 20,
) -> Outcome:
    """Parameter-free ensemble: APGD-CE, targeted APGD, FAB and Square, or a variant of it.

    The loss is the margin of the returned image.

    Args:
        version: `standard`; `plus` with more attacks and restarts; `rand` for randomised models.
        steps: of each gradient attack.
        queries: of Square.
        patience: a FAB walk that has come no nearer in this many steps stops, and so does one that
            will not reach the ball at its pace; 0 walks to the end.
        eot: forward passes averaged for every look in `rand`.
    """
    if version == "rand":
        victim = victim.averaging(max(victim.eot, eot))
    outcome = untouched(task)
    standing: dict[str, Tensor] = {}
    total = 0
    for name, stage in _stages(version, task.threat.norm, steps, queries, patience).items():
        rows = task.waiting(outcome)
        if len(rows):
            new = stage(victim, task.take(rows))
            # Losses of different attacks do not compare: an image is replaced when it falls.
            low = torch.full_like(new.loss, -torch.inf)
            outcome = absorb(outcome, rows, replace(new, loss=low))
            total = total + int(new.planned[0])
        standing[name] = ~outcome.fallen
    logits = victim.logits(outcome.images)
    outcome = planned(outcome, total)
    return replace(outcome, loss=margin(logits, task.labels), stages=standing)


def _stages(
    version: Version, norm: str, steps: int, queries: int, patience: int
) -> dict[str, Stage]:
    sparse = norm == "l1"
    radii: Literal["multi", "single"] = "multi" if sparse else "single"
    many = 5 if sparse or version == "plus" else 1
    few = 5 if sparse else 9
    last: dict[str, Stage] = {"square": lambda v, t: square(v, t, steps=queries)}
    ce: dict[str, Stage] = {
        "apgd-ce": lambda v, t: apgd(v, t, steps=steps, restarts=many, radii=radii)
    }
    targeted: dict[str, Stage] = {
        "apgd-t": lambda v, t: apgd(
            v, t, steps=steps, loss="dlr_targeted", targets=few, radii=radii
        )
    }
    ratio: dict[str, Stage] = {
        "apgd-dlr": lambda v, t: apgd(v, t, steps=steps, loss="dlr", restarts=many, radii=radii)
    }
    near: dict[str, Stage] = {"fab-t": lambda v, t: fab(v, t, steps=steps, patience=patience)}
    nearest: dict[str, Stage] = {
        "fab": lambda v, t: fab(v, t, steps=steps, restarts=many, targeted=False, patience=patience)
    }
    if version == "rand":
        return ce | {"apgd-dlr": lambda v, t: apgd(v, t, steps=steps, loss="dlr", radii=radii)}
    if version == "plus":
        return ce | ratio | nearest | targeted | near | last
    return ce | targeted | near | last
