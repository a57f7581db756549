"""The norms that multi-norm training meets by default: CIFAR-10's usual radii."""

from __future__ import annotations

from stockpot.attack.threat import Norms, Radii, Threat, parse_threats

NORMS = "linf,l2,l1"
RADII = "8/255,128/255,12"


def members(norms: Norms, eps: Radii) -> tuple[Threat, ...]:
    """The threats of a method's parameters."""
    return parse_threats(norms, eps).members
