"""Choosing the mixing weights of a soup: one evaluator, one file per method."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stockpot.registry import Kind, Tags
from stockpot.verbs import speak

if TYPE_CHECKING:
    from stockpot.season.choice import Choice

seasoners = Kind[Callable[..., "Choice"]](
    "seasoners", noun="seasoning method", package="stockpot.season"
).tagged(Tags)
speak(__name__, "stockpot.season.run:season")

__all__ = ["seasoners"]
