"""What a run would take on so many workers: our own scheduler, on a clock that is only counted.

    took = simulate([Work(276, reads=100e6)] * 1000, Site(workers=64, start=5.4, dispatch=0.02))
    took.seconds, took.shares     # {"work": 0.93, "start": 0.01, "read": 0.02, "idle": 0.04, ...}

Jobs are handed out by `run_all`, as to every engine. A worker starts when its first job comes; a
job reads (all readers share one disk), then computes (all who compute share the cores). Handing a
job out costs the one who does it `dispatch`, one job after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stockpot.engine import Job, Outcome, run_all

_DONE = 1e-12


class Work(NamedTuple):
    """One job."""

    seconds: float
    """Alone on a worker that is ready."""
    reads: float = 0.0
    """Bytes before that."""


class Site(NamedTuple):
    """Where it runs."""

    workers: int
    cores: float = math.inf
    """How many can compute at full speed at the same time; as many as there are workers if not
    told."""
    start: float = 0.0
    """Seconds until a new worker can do its first job."""
    dispatch: float = 0.0
    """Seconds of the one process that hands a job out and takes its answer."""
    disk: float = math.inf
    """Bytes per second, for all together."""


class Took(NamedTuple):
    """What a run would take."""

    seconds: float
    shares: dict[str, float]
    """Of the workers' time: `work`, `wait` (for a core), `start`, `read`, and `idle`."""
    dispatching: float
    """The part of the time in which the one who hands out is busy."""

    @property
    def bottleneck(self) -> str:
        """What costs most beside the work itself."""
        if self.dispatching > 0.9:
            return "dispatch"
        losses = {name: share for name, share in self.shares.items() if name != "work"}
        worst = max(losses, key=lambda name: losses[name])
        return worst if losses[worst] > 0.05 else "work"


def simulate(jobs: Sequence[Work], site: Site) -> Took:
    """Run jobs on the clock of a site."""
    clock = _Clock(site)
    for _ in run_all(clock, lambda job: job, jobs):
        pass
    total = clock.now * site.workers
    shares = {name: spent / total if total else 0.0 for name, spent in clock.spent.items()}
    shares["idle"] = max(0.0, 1.0 - sum(shares.values())) if total else 0.0
    return Took(clock.now, shares, len(jobs) * site.dispatch / clock.now if clock.now else 0.0)


@dataclass
class _Running:
    number: int
    left: list[tuple[str, float]]
    """What is still to be done: a kind of phase, and how much of it."""


@dataclass
class _Clock:
    """An engine whose jobs take the time that they say, and no other."""

    site: Site
    now: float = 0.0
    started: int = 0
    running: list[_Running] = field(default_factory=list)
    ended: list[_Running] = field(default_factory=list)
    spent: dict[str, float] = field(
        default_factory=lambda: {"work": 0.0, "wait": 0.0, "start": 0.0, "read": 0.0}
    )

    @property
    def size(self) -> int:
        return self.site.workers

    def open(self, function: Callable[[Job], Any], jobs: int) -> _Clock:
        return self

    def run(self, function: Callable[[Job], Any], jobs: Sequence[Job]) -> Iterator[Outcome]:
        return run_all(self, function, jobs)

    def submit(self, number: int, job: Any) -> None:
        self._pass(self.site.dispatch)
        phases = [("read", job.reads), ("work", job.seconds)]
        if self.started < self.site.workers:
            self.started += 1
            phases.insert(0, ("start", self.site.start))
        self.running.append(_Running(number, [phase for phase in phases if phase[1] > 0]))

    def next(self) -> Outcome:
        while not self.ended:
            self._pass(math.inf)
        return Outcome(self.ended.pop(0).number, None, None)

    def close(self) -> None:
        pass

    def _pass(self, seconds: float) -> None:
        """Let time go by: so much, or until the first job ends."""
        while seconds > _DONE:
            self._sort_out()
            if not self.running or (seconds == math.inf and self.ended):
                if seconds != math.inf:
                    self.now += seconds
                return
            rates = self._rates()
            step = min(one.left[0][1] / rates[one.left[0][0]] for one in self.running)
            step = min(step, seconds)
            for one in self.running:
                kind, much = one.left[0]
                done = step * rates[kind]
                one.left[0] = (kind, much - done)
                self.spent[kind] += done if kind == "work" else step
                if kind == "work":
                    self.spent["wait"] += step - done
            self.now += step
            seconds -= step

    def _sort_out(self) -> None:
        for one in list(self.running):
            while one.left and one.left[0][1] <= _DONE * max(1.0, self.now):
                one.left.pop(0)
            if not one.left:
                self.running.remove(one)
                self.ended.append(one)

    def _rates(self) -> dict[str, float]:
        kinds = [one.left[0][0] for one in self.running]
        computing = max(1, kinds.count("work") + kinds.count("start"))
        reading = max(1, kinds.count("read"))
        return {
            "work": min(1.0, self.site.cores / computing),
            "start": min(1.0, self.site.cores / computing),
            "read": self.site.disk / reading if self.site.disk < math.inf else 1e18,
        }
