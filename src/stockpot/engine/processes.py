"""Several jobs at a time, each worker a process of its own on this machine.

A worker that is killed, or gives no sign of life, costs its job one attempt: the job is given to a
fresh process, and reported when it fails there too. Jobs save what they make, so that nothing is
done twice.
"""

from __future__ import annotations

import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.util import Finalize
from typing import Any

from stockpot.engine import Job, Outcome, engines, run_all
from stockpot.engine.cores import usable_cores
from stockpot.engine.main_guard import NO_GUARD, check_main_guard, no_guard
from stockpot.engine.worker import BEAT, work
from stockpot.errors import BadParameterError, UserError

PRELOADED = ["torch", "transformers.modeling_utils"]
"""What nearly every worker needs and takes seconds to import."""
ATTEMPTS = 2
"""How often a job is given to a worker that then dies or hangs."""
SILENCE = 120.0
"""Seconds without a sign of life after which a process is taken for stopped or swapped out."""
STANDSTILL = 1800.0
"""Seconds for which a job may compute nothing at all, waiting for a disk or another machine."""
_TICK = 1.0
_BUSY = 0.02
"""Seconds of computing between two beats that tell work from the beating itself."""


def _clean_processes() -> BaseContext:
    """How workers start: never as a fork of this process, whose torch may have running threads.

    Where the system can, they fork from a server that has imported `PRELOADED` and done nothing
    else: so a worker, and those of the next stage, cost milliseconds and share that memory.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


class Processes:
    """Freshly started processes."""

    def __init__(
        self, workers: int, *, silence: float = SILENCE, standstill: float = STANDSTILL
    ) -> None:
        self.size = workers
        self._limits = silence, standstill

    def open(self, function: Callable[[Job], Any], jobs: int) -> ProcessWorkers:
        """Start as many as there are jobs, and no more than were asked for."""
        check_main_guard()
        return ProcessWorkers(function, min(self.size, max(1, jobs)), *self._limits)

    def run(self, function: Callable[[Job], Any], jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Run jobs as workers become free; a failing job does not stop the others."""
        return run_all(self, function, jobs)


class _Worker:
    """A process as its parent sees it."""

    def __init__(self, function: Callable[[Any], Any], workers: int) -> None:
        context = _clean_processes()
        self.pipe: Connection
        self.pipe, theirs = context.Pipe()
        threads = max(1, usable_cores() // workers)
        self.process = context.Process(  # type: ignore[attr-defined]
            target=work, args=(theirs, function, threads, workers, dict(os.environ)), daemon=False
        )
        self.process.start()
        theirs.close()
        self.number: int | None = None
        self.started = False
        self.silent = self.still = self._computed = 0.0

    def give(self, number: int, job: Any) -> None:
        self.pipe.send(job)  # packed anew each time: shared memory can be handed over once
        self.number = number
        self.still = 0.0

    def lived(self, computed: float) -> None:
        self.started = True
        if computed - self._computed > _BUSY:
            self.still = 0.0
        self._computed = computed

    @property
    def ended_in_starting(self) -> bool:
        """Whether it ended by itself before it could be given work; the next one would too."""
        return not self.started and (self.process.exitcode or 0) > 0

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


class ProcessWorkers:
    """Processes that wait for jobs."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        size: int,
        silence: float = SILENCE,
        standstill: float = STANDSTILL,
    ) -> None:
        self.size = size
        self._function = function
        self._silence, self._standstill = silence, standstill
        self._workers: list[_Worker] = []
        self._jobs: dict[int, tuple[Any, int]] = {}
        """Number -> the job and how often it was tried."""
        self._seen = time.monotonic()
        # A program that ends with an error must not wait for workers that wait for it.
        self._at_exit = Finalize(None, _kill_all, args=(self._workers,), exitpriority=10)

    def submit(self, number: int, job: Any) -> None:
        """Hand a job to whichever process is free."""
        self._jobs[number] = (job, 0)
        self._begin(number)

    def _begin(self, number: int) -> None:
        job, tried = self._jobs[number]
        self._jobs[number] = (job, tried + 1)
        while True:
            worker = next((one for one in self._workers if one.number is None), None)
            if worker is None:
                worker = _Worker(self._function, self.size)
                self._workers.append(worker)
            try:
                worker.give(number, job)
                return
            except OSError:  # it died while it waited
                self._workers.remove(worker)
                worker.kill()
                if worker.ended_in_starting:
                    raise _not_started(worker) from None

    def next(self) -> Outcome:
        """The next job to end."""
        while True:
            for worker in self._ready():
                outcome = self._answer(worker)
                if outcome is not None:
                    return outcome
            for worker, problem in self._late():
                worker.kill()
                outcome = self._lost(worker, problem)
                if outcome is not None:
                    return outcome

    def _ready(self) -> list[_Worker]:
        ready = wait([worker.pipe for worker in self._workers], timeout=_TICK)
        return [worker for worker in self._workers if worker.pipe in ready]

    def _answer(self, worker: _Worker) -> Outcome | None:
        try:
            kind, value = worker.pipe.recv()
        except (EOFError, OSError):
            worker.kill()
            return self._lost(worker, "was killed (out of memory?)")
        worker.silent = 0.0
        if kind == "beat":
            worker.lived(value)
            return None
        number, worker.number = worker.number, None
        assert number is not None
        del self._jobs[number]
        return Outcome(number, value, None) if kind == "done" else Outcome(number, None, value)

    def _late(self) -> list[tuple[_Worker, str]]:
        """Workers that hang. Only time in which this process was awake itself is counted."""
        now = time.monotonic()
        passed, self._seen = min(now - self._seen, 2 * _TICK), now
        found = []
        for worker in self._workers:
            worker.silent += passed
            worker.still += passed
            if worker.silent > self._silence + BEAT:
                found.append((worker, f"gave no sign of life for {self._silence:g} s"))
            elif worker.number is not None and worker.still > self._standstill:
                found.append((worker, f"computed nothing for {self._standstill:g} s"))
        return found

    def _lost(self, worker: _Worker, problem: str) -> Outcome | None:
        """A worker is gone: its job is tried again in a new one, or given up."""
        self._workers.remove(worker)
        number = worker.number
        if worker.ended_in_starting:
            raise _not_started(worker)
        if number is None:
            return None
        _, tried = self._jobs[number]
        if tried < ATTEMPTS:
            warnings.warn(
                f"a worker process {problem}; its work is done again in another.",
                UserWarning,
                stacklevel=2,
            )
            self._begin(number)
            return None
        del self._jobs[number]
        times = f", {tried} times in a row" if tried > 1 else ""
        return Outcome(number, None, UserError(f"a worker process {problem}{times}."))

    def close(self) -> None:
        """Let the processes go; finished jobs are saved, running ones are not worth waiting for."""
        for worker in self._workers:
            if worker.number is None:
                worker.pipe.close()  # it ends by itself
                worker.process.join(10)
        _kill_all(self._workers)
        self._at_exit.cancel()


def _kill_all(workers: list[_Worker]) -> None:
    while workers:
        workers.pop().kill()


def _not_started(worker: _Worker) -> UserError:
    if worker.process.exitcode == NO_GUARD:
        return no_guard()
    return UserError(
        f"a worker process could not start (exit code {worker.process.exitcode}).",
        hint="Take engine serial to see what it says.",
    )


@engines.register("processes")
def processes(*, workers: int = 0) -> Processes:
    """Several jobs at a time, each worker a process of its own.

    Args:
        workers: how many; 0 takes one per core that this process may use.
    """
    if workers < 0:
        raise BadParameterError(f"workers: expected 0 or more, got {workers}.")
    return Processes(workers or usable_cores())
