"""Where work runs: in this process, in several, or elsewhere.

An engine takes a function and a list of jobs and yields what became of each as it is done. Jobs
are plain values that can be pickled; what a job makes is saved by the job itself, so an engine
that dies loses nothing that was finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from stockpot.registry import Kind, Tags

Job = TypeVar("Job")


class Outcome(NamedTuple):
    """What became of one job: its value, or the error that ended it."""

    job: int
    value: Any
    error: Exception | None


class Engine(Protocol):
    """Something that can run jobs."""

    def run(self, function: Callable[[Job], Any], jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Run every job; yield outcomes in the order in which they finish."""
        ...


engines = Kind[Callable[..., "Engine"]]("engines", noun="engine", package="stockpot.engine").tagged(
    Tags
)
