"""Threat models: how far an adversary may move an image.

    Linf("8/255") | L2(0.5) | L1(12)

is a union: an image counts as robust only if it withstands every member. A radius may be a
fraction written as text, and stays that text in results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast, get_args

from stockpot.errors import BadParameterError
from stockpot.types import Norm, parse_number


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
    return Threat(norm, eps if isinstance(eps, str) else f"{eps:g}")


def parse_threats(norms: str | Sequence[str], eps: str | Sequence[str | float]) -> Threats:
    """A union from lists, or texts such as `linf,l1` and `8/255,12`."""
    names, radii = listed(norms), listed(eps)
    if not names or len(names) != len(radii):
        raise BadParameterError(
            f"expected one eps for each norm, got norms {', '.join(names) or 'none'} "
            f"and eps {', '.join(radii) or 'none'}."
        )
    pairs = zip(names, radii, strict=True)
    return Threats(tuple(threat(cast(Norm, name), radius) for name, radius in pairs))


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
    return Threats(tuple(members))


def listed(value: str | Sequence[str | float]) -> list[str]:
    """The parts of a text with commas, or of a list; numbers as text."""
    parts = value.split(",") if isinstance(value, str) else list(value)
    texts = [part.strip() if isinstance(part, str) else f"{part:g}" for part in parts]
    return [text for text in texts if text]


def Linf(eps: str | float) -> Threat:  # noqa: N802
    """Every value of every pixel may change by eps."""
    return threat("linf", eps)


def L2(eps: str | float) -> Threat:  # noqa: N802
    """The root of the summed squared changes may reach eps."""
    return threat("l2", eps)


def L1(eps: str | float) -> Threat:  # noqa: N802
    """The summed absolute changes may reach eps: few pixels, changed a lot."""
    return threat("l1", eps)
