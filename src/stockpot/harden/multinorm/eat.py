"""E-AT: only the extreme norms, the weaker one more often (Croce and Hein, arXiv:2105.12508)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.attack.threat import Norms, Radii
from stockpot.harden import hardeners
from stockpot.harden.adversarial.worst import worst
from stockpot.harden.many.processes import sum_of
from stockpot.harden.multinorm.threats import Adversary, Steps, adversaries
from stockpot.harden.objective import Objective, Step


@hardeners.register("eat", paper="arXiv:2105.12508")
def eat(*, norms: Norms = "linf,l1", eps: Radii = "8/255,12", steps: Steps = 10) -> Objective:
    """Adversarial training against one extreme norm per batch, more often where it is weaker.

    A norm's chance is proportional to its robust training error so far; robustness to the l_inf
    and l_1 balls implies some to those between them.

    Args:
        norms: such as `linf,l1`.
        eps: a radius for each norm.
        steps: of the attack, or a number for each norm, such as `10,10,20`.
    """
    return _ExtremeNorms(adversaries(norms, eps, steps))


class _ExtremeNorms:
    """The objective, with a count of images seen and of images that fell, for each norm."""

    def __init__(self, attacks: tuple[Adversary, ...]) -> None:
        self.attacks = attacks
        self.seen = [0] * len(attacks)
        self.fallen = [0] * len(attacks)

    def __call__(self, step: Step) -> Tensor:
        drawn = float(torch.rand((), generator=step.generator))
        chosen = self.choose(drawn)
        found = worst(step, *self.attacks[chosen])
        self.seen[chosen] += len(step.whole)
        self.fallen[chosen] += sum_of(int(found.fallen.sum()))[0]
        return F.cross_entropy(step.model(found.images), step.labels)

    def chances(self) -> list[float]:
        """Equal until every norm has been seen, then by robust error."""
        errors = [
            fallen / seen if seen else 0.0
            for fallen, seen in zip(self.fallen, self.seen, strict=True)
        ]
        if 0 in self.seen or not any(errors):
            return [1 / len(errors)] * len(errors)
        return [error / sum(errors) for error in errors]

    def choose(self, drawn: float) -> int:
        """The norm that a number in [0, 1) stands for."""
        for index, chance in enumerate(self.chances()):
            drawn -= chance
            if drawn < 0:
                return index
        return len(self.attacks) - 1

    def state_dict(self) -> dict[str, Any]:
        """The counts."""
        return {"seen": list(self.seen), "fallen": list(self.fallen)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from saved counts."""
        self.seen, self.fallen = list(state["seen"]), list(state["fallen"])
