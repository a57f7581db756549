"""Threat models: how far an adversary may move an image.

    Linf("8/255") | L2(0.5) | L1(12)

is a union: an image counts as robust only if it withstands every member. A radius may be a
fraction written as text, and stays that text in results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, cast, get_args

from pydantic import Field

from stockpot.attack import attacks
from stockpot.errors import BadParameterError, UnknownNameError
from stockpot.types import Check, Norm, Reference, Together, parse_number


@dataclass(frozen=True)
class Threat:
    """A ball around each image, cut by the box of valid pixels."""

    norm: Norm
    eps: str

    def __post_init__(self) -> None:
        if self.norm not in get_args(Norm):
            raise BadParameterError(f"norm: expected linf, l2 or l1, got {self.norm!r}.")
        if not 0 <= self.radius < float("inf"):
            raise BadParameterError(f"eps: expected a radius of at least 0, got {self.eps!r}.")

    @cached_property
    def radius(self) -> float:
        """The radius in pixel units, where black is 0 and white is 1."""
        return parse_number(self.eps, what="eps")

    def __or__(self, other: Threat | Threats) -> Threats:
        return Threats((self,)) | other

    def __str__(self) -> str:
        return f"{self.norm} {self.eps}"


@dataclass(frozen=True)
class Threats:
    """A union of threat models."""

    members: tuple[Threat, ...]

    def __or__(self, other: Threat | Threats) -> Threats:
        more = other.members if isinstance(other, Threats) else (other,)
        return Threats(tuple(dict.fromkeys(self.members + more)))

    def __str__(self) -> str:
        return " | ".join(map(str, self.members))


def threat(norm: Norm, eps: str | float) -> Threat:
    """A threat model from a norm's name and a radius."""
    return Threat(norm, eps if isinstance(eps, str) else _digits(eps))


def parse_threats(norms: str | Sequence[str], eps: str | Sequence[str | float]) -> Threats:
    """A union from lists, or texts such as `linf,l1` and `8/255,12`."""
    names, radii = listed(norms), listed(eps)
    if not names or len(names) != len(radii):
        raise BadParameterError(
            f"expected one eps for each norm, got norms {', '.join(names) or 'none'} "
            f"and eps {', '.join(radii) or 'none'}."
        )
    pairs = zip(names, radii, strict=True)
    return _union_of([threat(cast(Norm, name), radius) for name, radius in pairs])


def parse_union(text: str) -> Threats:
    """A union from a text such as `linf:8/255,l1:12`."""
    members = []
    for part in listed(text):
        norm, colon, eps = part.partition(":")
        if not colon:
            raise BadParameterError(f"expected threats such as linf:8/255,l1:12, got {text!r}.")
        members.append(threat(cast(Norm, norm), eps))
    if not members:
        raise BadParameterError("expected threats such as linf:8/255,l1:12, got none.")
    return _union_of(members)


def _union_of(members: Sequence[Threat]) -> Threats:
    """A threat that is named twice is one: its images would count twice."""
    return Threats(tuple(dict.fromkeys(members)))


def listed(value: str | Sequence[str | float]) -> list[str]:
    """The parts of a text with commas, or of a list; numbers as text."""
    parts = value.split(",") if isinstance(value, str) else list(value)
    texts = [part.strip() if isinstance(part, str) else _digits(part) for part in parts]
    return [text for text in texts if text]


def _digits(value: float) -> str:
    """A number as text, with all its digits and none that say nothing."""
    return repr(float(value)).removesuffix(".0")


def _eps(value: Any) -> Any:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise BadParameterError(f"expected a number or text such as 8/255, got {value!r}.")
    threat("linf", value)
    return value


def _norms(value: Any) -> Any:
    names = _texts(value, "norms such as linf,l1")
    for name in names:
        if name not in get_args(Norm):
            raise BadParameterError(f"expected linf, l2 or l1, got {name!r}.")
    return value if isinstance(value, str) else tuple(value)


def _radii(value: Any) -> Any:
    for radius in _texts(value, "radii such as 8/255,12"):
        threat("linf", radius)
    return (value,) if isinstance(value, int | float) else value


def _one_for_each(value: Any, others: dict[str, Any]) -> None:
    """Norms and radii are pairs, given or by default; `all` norms and no radii are a protocol's."""
    norms = others.get("norms")
    if norms not in (None, "all") and value:
        parse_threats(norms, value)


def _union(value: Any) -> Any:
    if value:
        parse_union(",".join(_texts(value, "threats such as linf:8/255,l1:12")))
    return value


def _texts(value: Any, what: str) -> list[str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [_digits(value)]
    whole = isinstance(value, str) or (
        isinstance(value, list | tuple) and all(isinstance(v, str | int | float) for v in value)
    )
    if not whole:
        raise BadParameterError(f"expected {what}, got {value!r}.")
    return listed(value)


def _attack(value: Any) -> Any:
    if value and value not in attacks:
        raise UnknownNameError(attacks.noun, str(value), attacks.names())
    return value


Eps = Annotated[str | float, Check(_eps)]
"""A radius in pixel units: a number, or a fraction that stays text."""
Norms = Annotated[str | tuple[Norm, ...], Check(_norms)]
"""Norms with commas between, or a list of them."""
Radii = Annotated[
    str | tuple[str | float, ...],
    Check(_radii),
    Together(_one_for_each),
    Field(validate_default=True),
]
"""One radius for each of the parameter `norms`."""
ThreatUnion = Annotated[str | tuple[str, ...], Check(_union)]
"""Threats such as `linf:8/255,l1:12`."""
AttackRef = Annotated[str, Check(_attack), Reference("attack")]
"""The name of an attack."""


def Linf(eps: str | float) -> Threat:  # noqa: N802
    """Every value of every pixel may change by eps."""
    return threat("linf", eps)


def L2(eps: str | float) -> Threat:  # noqa: N802
    """The root of the summed squared changes may reach eps."""
    return threat("l2", eps)


def L1(eps: str | float) -> Threat:  # noqa: N802
    """The summed absolute changes may reach eps: few pixels, changed a lot."""
    return threat("l1", eps)
