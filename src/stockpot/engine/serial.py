"""One job after another, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from stockpot.engine import Job, Outcome, engines, run_all


class Serial:
    """Runs jobs in the order given."""

    size = 1

    def open(self, function: Callable[[Job], Any], jobs: int) -> Here:
        """The one worker that there is."""
        return Here(function)

    def run(self, function: Callable[[Job], Any], jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Run every job here; a failing job does not stop the others."""
        return run_all(self, function, jobs)


class Here:
    """A job is done when somebody waits for it."""

    size = 1

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        self._job: tuple[int, Any] | None = None

    def submit(self, number: int, job: Any) -> None:
        """Keep the job until it is waited for."""
        self._job = (number, job)

    def next(self) -> Outcome:
        """Do the job."""
        if self._job is None:
            raise RuntimeError("no job is under way")
        (number, job), self._job = self._job, None
        try:
            return Outcome(number, self._function(job), None)
        except Exception as problem:
            return Outcome(number, None, problem)

    def close(self) -> None:
        """Nothing runs elsewhere."""


@engines.register("serial")
def serial() -> Serial:
    """One job after another, in this process."""
    return Serial()
