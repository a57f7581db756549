"""Choosing the mixing weights of a soup: one evaluator, one file per method."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stockpot.registry import Registry
from stockpot.verbs import speak

if TYPE_CHECKING:
    from stockpot.season.choice import Choice

seasoners: Registry[Callable[..., Choice]] = Registry(
    "seasoners", noun="seasoning method", package="stockpot.season"
)
speak(__name__, "stockpot.season.run:season")
