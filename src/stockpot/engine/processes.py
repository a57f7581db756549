"""Several jobs at a time, each worker a process of its own on this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import BaseContext
from typing import Any

from stockpot.engine import Job, Outcome, engines, keep_freed_memory, run_all
from stockpot.engine.cores import share_with, usable_cores
from stockpot.engine.main_guard import check_main_guard
from stockpot.errors import BadParameterError, UserError

PRELOADED = ["torch", "transformers.modeling_utils"]
"""What nearly every worker needs and takes seconds to import."""


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


def _start_worker(threads: int, workers: int, environment: dict[str, str]) -> None:
    # The server keeps the variables that it was started with; these are of now.
    os.environ.clear()
    os.environ.update(environment)
    # Workers share the cores; each keeps to its part.
    os.environ["OMP_NUM_THREADS"] = str(threads)
    # Ctrl-C reaches the whole group of processes; only the first one answers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_freed_memory()
    share_with(workers)
    import torch

    torch.set_num_threads(threads)


class Processes:
    """Freshly started processes."""

    def __init__(self, workers: int) -> None:
        self.size = workers

    def open(self, function: Callable[[Job], Any], jobs: int) -> ProcessWorkers:
        """Start as many as there are jobs, and no more than were asked for."""
        check_main_guard()
        return ProcessWorkers(function, min(self.size, max(1, jobs)))

    def run(self, function: Callable[[Job], Any], jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Run jobs as workers become free; a failing job does not stop the others."""
        return run_all(self, function, jobs)


class ProcessWorkers:
    """Processes that wait for jobs."""

    def __init__(self, function: Callable[[Any], Any], size: int) -> None:
        self.size = size
        self._function = function
        self._running: dict[Future[Any], int] = {}
        self._pool = self._started()

    def _started(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self.size,
            mp_context=_clean_processes(),
            initializer=_start_worker,
            initargs=(max(1, usable_cores() // self.size), self.size, dict(os.environ)),
        )

    def submit(self, number: int, job: Any) -> None:
        """Hand a job to whichever process is free."""
        try:
            future = self._pool.submit(self._function, job)
        except BrokenProcessPool:
            # A killed worker takes those beside it along, but not the jobs that come after.
            self._pool = self._started()
            future = self._pool.submit(self._function, job)
        self._running[future] = number

    def next(self) -> Outcome:
        """The next job to end."""
        done, _ = wait(self._running, return_when=FIRST_COMPLETED)
        future = next(iter(done))
        number = self._running.pop(future)
        problem = future.exception()
        if isinstance(problem, BrokenProcessPool):
            problem = UserError("a worker process was killed (out of memory?).")
        if problem is not None and not isinstance(problem, Exception):
            raise problem
        return Outcome(number, None if problem else future.result(), problem)

    def close(self) -> None:
        """Let the processes go; finished jobs are saved, running ones are not worth waiting for."""
        if self._running:
            for worker in multiprocessing.active_children():
                worker.terminate()
        self._pool.shutdown(wait=True, cancel_futures=True)


@engines.register("processes")
def processes(*, workers: int = 0) -> Processes:
    """Several jobs at a time, each worker a process of its own.

    Args:
        workers: how many; 0 takes one per core that this process may use.
    """
    if workers < 0:
        raise BadParameterError(f"workers: expected 0 or more, got {workers}.")
    return Processes(workers or usable_cores())
