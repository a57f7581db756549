"""The norms that multi-norm training meets by default: CIFAR-10's usual radii."""

from __future__ import annotations

from stockpot.attack.threat import Norms, Radii, Threat, parse_threats
from stockpot.errors import BadParameterError

NORMS = "linf,l2,l1"
RADII = "8/255,128/255,12"


def members(method: str, norms: Norms, eps: Radii, steps: int) -> tuple[Threat, ...]:
    """The threats of a method's parameters."""
    if steps < 1:
        raise BadParameterError(f"{method}: expected steps >= 1, got {steps}.")
    return parse_threats(norms, eps).members
