"""Checks of parameters that several methods share."""

from __future__ import annotations

from stockpot.errors import BadParameterError


def check_share(name: str, value: float) -> None:
    """Raise unless a number lies in [0, 1]."""
    if not 0 <= value <= 1:
        raise BadParameterError(f"{name}: expected a share from 0 to 1, got {value}.")


def check_positive(name: str, value: float) -> None:
    """Raise unless a number is above zero."""
    if not value > 0:
        raise BadParameterError(f"{name}: expected a number above 0, got {value}.")


def normalized(weights: list[float] | None, normalize: bool) -> list[float] | None:
    """The weights, divided by their sum when that is wished."""
    if weights is None or not normalize:
        return weights
    total = sum(weights)
    if abs(total) < 1e-12:
        raise BadParameterError(
            f"weights: they add up to 0 and cannot be normalised, got {weights}.",
            hint="Set normalize=false to use them as they are.",
        )
    return [weight / total for weight in weights]
