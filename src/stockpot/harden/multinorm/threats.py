"""The norms that multi-norm training meets by default: CIFAR-10's usual radii."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from stockpot.attack.threat import Norms, Radii, Threat, listed, parse_threats
from stockpot.errors import BadParameterError
from stockpot.types import MOST, Check, Together

NORMS = "linf,l2,l1"
RADII = "8/255,128/255,12"


class Adversary(NamedTuple):
    """A threat, and the steps of the attack that stands for it."""

    threat: Threat
    steps: int


def _steps(value: Any) -> Any:
    _counts(value)
    return value if isinstance(value, int | str) else tuple(value)


def _one_for_each(value: Any, others: dict[str, Any]) -> None:
    if "norms" in others:
        _shared_out(value, len(listed(others["norms"])))


Steps = Annotated[int | str | tuple[int, ...], Check(_steps), Together(_one_for_each)]
"""Steps of every attack, or one number for each of the parameter `norms`, such as `10,10,20`."""


def adversaries(norms: Norms, eps: Radii, steps: Steps) -> tuple[Adversary, ...]:
    """The attacks of a method's parameters."""
    threats = parse_threats(norms, eps).members
    counts = _shared_out(steps, len(threats))
    return tuple(Adversary(*pair) for pair in zip(threats, counts, strict=True))


def members(norms: Norms, eps: Radii) -> tuple[Threat, ...]:
    """The threats of a method's parameters."""
    return parse_threats(norms, eps).members


def _shared_out(value: Any, norms: int) -> list[int]:
    counts = _counts(value)
    if len(counts) not in (1, norms):
        raise BadParameterError(
            f"expected one number of steps, or one for each of the {norms} norms, got {value!r}."
        )
    return counts * norms if len(counts) == 1 else counts


def _counts(value: Any) -> list[int]:
    parts = [value] if isinstance(value, int) else value
    texts = listed(parts) if isinstance(parts, str | list | tuple) else []
    if not texts or not all(text.isdecimal() and 1 <= int(text) <= MOST for text in texts):
        raise BadParameterError(
            f"expected whole numbers of at least 1, such as 10 or 10,10,20, got {value!r}."
        )
    return [int(text) for text in texts]
