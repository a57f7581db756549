"""Adversaries: searches for the worst image within reach of each picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stockpot.registry import Kind, Tags
from stockpot.verbs import speak

if TYPE_CHECKING:
    from stockpot.attack.task import Outcome

attacks = Kind[Callable[..., "Outcome"]](
    "attacks", noun="attack", package="stockpot.attack"
).tagged(Tags)
speak(__name__, "stockpot.attack.run:attack")

__all__ = ["attacks"]
