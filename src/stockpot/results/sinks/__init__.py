"""Sinks: trackers that are told each result as it comes (`--to mlflow`, `sinks:` in a recipe).

A sink is a function from the folder of the run (none where results are not saved) to a `Sink`;
what the tracker itself is told by its environment (a server, a key) stays there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stockpot.registry import Kind, Tags

if TYPE_CHECKING:
    from stockpot.results.sinks.sink import Sink

sinks = Kind[Callable[..., "Sink"]]("sinks", noun="sink", package="stockpot.results.sinks").tagged(
    Tags
)

__all__ = ["sinks"]
