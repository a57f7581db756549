"""Small frozen values that several rooms share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, NamedTuple

from stockpot.errors import BadParameterError

Norm = Literal["linf", "l2", "l1"]
Split = Literal["train", "val", "test"]


class Bounds(NamedTuple):
    """The interval that pixel values live in."""

    lower: float = 0.0
    upper: float = 1.0


class ImageSize(NamedTuple):
    """Height and width in pixels."""

    height: int
    width: int

    def __str__(self) -> str:
        return f"{self.height}x{self.width}"


@dataclass(frozen=True)
class Variant:
    """One of the models that an entry of a recipe stands for."""

    entry: str
    seed: int | None = None
    """What it is trained with, where the entry has several seeds."""
    sweep: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
    """The value of the parameter that the entry sweeps."""

    @property
    def label(self) -> str:
        """How the model is called: its folder, and its row in a table."""
        point = "".join(f"-{key}={value}" for key, value in self.sweep.items())
        run = "" if self.seed is None else f"-s{self.seed}"
        return f"{self.entry}{point}{run}"


def parse_number(text: str | float, *, what: str = "value") -> float:
    """Read a number that may be written as a fraction, such as `8/255`."""
    if isinstance(text, int | float):
        return float(text)
    try:
        return float(Fraction(text.replace(" ", "")))
    except (ValueError, ZeroDivisionError):
        raise BadParameterError(
            f"{what}: expected a number or a fraction such as 8/255, got {text!r}."
        ) from None
