"""Measures: each looks at one model on one dataset and yields scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stockpot.registry import Kind, Tags
from stockpot.verbs import speak

if TYPE_CHECKING:
    from stockpot.measure.measurement import Measurement


@dataclass(frozen=True, kw_only=True)
class MeasureTags(Tags):
    """What is said of a measure beside its signature."""

    passes: bool = False
    """Whether its answers come from `context.passes`, in the precision that a run chooses; others
    run the model themselves, and their question knows no precision."""
    adapts: bool = False
    """Whether it takes models that change by being asked, and says what they were asked."""
    splits: bool = False
    """Whether its (first) pass over the images can be divided among workers, with `shards`."""
    joins: bool = False
    """Whether a model may begin while others are under way: every step is the next batch of the
    data itself, and nothing else."""


measures = Kind[Callable[..., "Measurement"]](
    "measures", noun="measure", package="stockpot.measure"
).tagged(MeasureTags)
speak(__name__, "stockpot.measure.run:measure")

__all__ = ["MeasureTags", "measures"]
