"""Several jobs at a time, each worker a process of its own on this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from stockpot.engine import Job, Outcome, engines
from stockpot.engine.memory import keep_freed_memory
from stockpot.errors import BadParameterError, UserError


def _start_worker(threads: int) -> None:
    # Workers share the cores; each keeps to its part.
    os.environ["OMP_NUM_THREADS"] = str(threads)
    # Ctrl-C reaches the whole group of processes; only the first one answers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_freed_memory()
    import torch

    torch.set_num_threads(threads)


class Processes:
    """A pool of freshly started processes."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def run(self, function: Callable[[Job], Any], jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Run jobs as workers become free; a failing job does not stop the others."""
        workers = min(self.workers, max(1, len(jobs)))
        threads = max(1, usable_cores() // workers)
        # A forked torch with running threads may hang, so workers start from nothing.
        pool = ProcessPoolExecutor(
            workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_worker,
            initargs=(threads,),
        )
        try:
            futures = {pool.submit(function, job): index for index, job in enumerate(jobs)}
            for future in as_completed(futures):
                problem = future.exception()
                if isinstance(problem, BrokenProcessPool):
                    problem = UserError("a worker process was killed (out of memory?).")
                if problem is not None and not isinstance(problem, Exception):
                    raise problem
                value = None if problem else future.result()
                yield Outcome(futures[future], value, problem)
        except BaseException:
            # Interrupted: finished jobs are saved, running ones are not worth waiting for.
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@engines.register("processes")
def processes(*, workers: int = 0) -> Processes:
    """Several jobs at a time, each worker a process of its own.

    Args:
        workers: how many; 0 takes one per core that this process may use.
    """
    if workers < 0:
        raise BadParameterError(f"workers: expected 0 or more, got {workers}.")
    return Processes(workers or usable_cores())


def usable_cores() -> int:
    """Cores that this process may use; a container or `taskset` often grants fewer than exist."""
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = min(cores, len(os.sched_getaffinity(0)))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):
        return cores  # no such file, or "max": no quota
