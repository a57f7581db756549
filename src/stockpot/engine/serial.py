"""One job after another, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from stockpot.engine import Job, Outcome, engines


class Serial:
    """Runs jobs in the order given."""

    def run(self, function: Callable[[Job], Any], jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Run every job here; a failing job does not stop the others."""
        for index, job in enumerate(jobs):
            try:
                yield Outcome(index, function(job), None)
            except Exception as problem:
                yield Outcome(index, None, problem)


@engines.register("serial")
def serial() -> Serial:
    """One job after another, in this process."""
    return Serial()
