"""Small frozen values that several rooms share."""

from __future__ import annotations

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
