"""Measures: each looks at one model on one dataset and yields scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stockpot.registry import Kind, Tags
from stockpot.verbs import speak

if TYPE_CHECKING:
    from stockpot.measure.measurement import Measurement

measures = Kind[Callable[..., "Measurement"]](
    "measures", noun="measure", package="stockpot.measure"
).tagged(Tags)
speak(__name__, "stockpot.measure.run:measure")

__all__ = ["measures"]
