"""AutoAttack: a fixed sequence of attacks, each on the images that are still standing.

What each version consists of follows the authors' program, github.com/fra31/auto-attack.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, get_args

import torch
from torch import Tensor

from stockpot.attack import attacks
from stockpot.attack.losses import margin
from stockpot.attack.methods.apgd import apgd
from stockpot.attack.methods.fab import fab
from stockpot.attack.methods.square import square
from stockpot.attack.task import Outcome, Task, absorb, planned, untouched
from stockpot.attack.victim import Victim
from stockpot.errors import UnknownNameError
from stockpot.types import Check, Count, Natural

Version = Literal["standard", "plus", "rand"]
Part = Literal["apgd-ce", "apgd-dlr", "fab", "square", "apgd-t", "fab-t"]

VERSIONS: dict[Version, tuple[Part, ...]] = {
    "standard": ("apgd-ce", "apgd-t", "fab-t", "square"),
    "plus": ("apgd-ce", "apgd-dlr", "fab", "square", "apgd-t", "fab-t"),
    "rand": ("apgd-ce", "apgd-dlr"),
}
"""The attacks of each version, in the order of the authors' program."""


def _parts(value: Any) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else list(value)
    chosen = tuple(name.strip() for name in map(str, names) if str(name).strip())
    for name in chosen:
        if name not in get_args(Part):
            raise UnknownNameError("part of AutoAttack", name, get_args(Part))
    return chosen


Parts = Annotated[str | tuple[str, ...], Check(_parts)]
"""Parts of AutoAttack, with commas between, or a list of them."""


@attacks.register("autoattack", paper="arXiv:2003.01690")
def autoattack(
    victim: Victim,
    task: Task,
    *,
    version: Version = "standard",
    attacks: Parts = (),
    steps: Natural = 100,
    queries: Count = 5000,
    targets: Count | None = None,
    patience: Natural = 0,
    eot: Count | None = None,
) -> Outcome:
    """Parameter-free ensemble: APGD-CE, targeted APGD, FAB and Square, or a variant of it.

    The loss is the margin of the returned image.

    Args:
        version: `standard`; `plus` with more attacks and restarts; `rand` for randomised models.
        attacks: these parts instead, in this order, each as the version would run it: `apgd-ce`,
            `apgd-dlr`, `apgd-t`, `fab`, `fab-t`, `square`.
        steps: of each gradient attack.
        queries: of Square.
        targets: how many wrong classes `apgd-t`, `fab` and `fab-t` try; 9, and 5 for `apgd-t` in
            l_1, as published.
        patience: a FAB walk that has come no nearer in this many steps stops, and so does one that
            will not reach the ball at its pace; 0 walks to the end, as published. 20 spares three
            quarters of the walks' passes.
        eot: forward passes averaged for every look; 20 for `rand`, else 1.
    """
    if eot is not None or version == "rand":
        victim = victim.averaging(eot or 20)
    settings = _Settings(version, task.threat.norm == "l1", steps, queries, targets, patience)
    outcome = untouched(task)
    standing: dict[str, Tensor] = {}
    total = 0
    for name in attacks or VERSIONS[version]:
        rows = task.waiting(outcome)
        if len(rows):
            new = _PARTS[name](victim, task.take(rows), settings)
            # Losses of different attacks do not compare: an image is replaced when it falls.
            low = torch.full_like(new.loss, -torch.inf)
            outcome = absorb(outcome, rows, replace(new, loss=low))
            total = total + int(new.planned[0])
        standing[name] = ~outcome.fallen
    logits = victim.logits(outcome.images)
    outcome = replace(outcome, queries=outcome.queries + victim.eot)
    outcome = planned(outcome, total + victim.eot)
    return replace(outcome, loss=margin(logits, task.labels), stages=standing)


@dataclass(frozen=True)
class _Settings:
    version: Version
    sparse: bool
    steps: int
    queries: int
    targets: int | None
    patience: int

    @property
    def larger(self) -> Literal["multi", "single"]:
        """In l_1 the standard version begins at larger radii; the others do not."""
        return "multi" if self.sparse and self.version == "standard" else "single"

    @property
    def restarts(self) -> int:
        return 5 if self.version == "plus" or self.larger == "multi" else 1


def _apgd_t(victim: Victim, task: Task, s: _Settings) -> Outcome:
    targets = s.targets or (5 if s.larger == "multi" else 9)
    return apgd(victim, task, steps=s.steps, loss="dlr_targeted", targets=targets, radii=s.larger)


def _fab(victim: Victim, task: Task, s: _Settings) -> Outcome:
    targets = s.targets or 9
    restarts = 5 if s.version == "plus" else 1
    return fab(
        victim, task, steps=s.steps, restarts=restarts, targets=targets, targeted=False,
        patience=s.patience,
    )  # fmt: skip


_PARTS: dict[str, Callable[[Victim, Task, _Settings], Outcome]] = {
    "apgd-ce": lambda v, t, s: apgd(v, t, steps=s.steps, restarts=s.restarts, radii=s.larger),
    "apgd-dlr": lambda v, t, s: apgd(
        v, t, steps=s.steps, loss="dlr", restarts=s.restarts, radii=s.larger
    ),
    "apgd-t": _apgd_t,
    "fab": _fab,
    "fab-t": lambda v, t, s: fab(v, t, steps=s.steps, targets=s.targets or 9, patience=s.patience),
    "square": lambda v, t, s: square(v, t, steps=s.queries),
}
