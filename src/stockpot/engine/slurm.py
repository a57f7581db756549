"""Jobs of a SLURM cluster, through submitit: all that are known at once go in as one array.

Parameters have submitit's names. With `cluster: local` the same jobs are processes of this machine.
A job that was preempted or ran out of its time is put back by submitit; one that was lost is sent
again. Jobs save what they make whole, and find it when they are run a second time.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from stockpot.engine import Job, Outcome, engines, run_all
from stockpot.engine.cores import usable_cores
from stockpot.engine.surroundings import Surroundings, sendable
from stockpot.errors import BadParameterError, MissingDependencyError, UserError
from stockpot.files import is_abandoned, own_mark
from stockpot.types import Count, Natural

_LOOK = 0.5
"""Seconds between two looks of a local job at whether it is still wanted."""


class Slurm:
    """A SLURM cluster, or this machine in its place."""

    def __init__(
        self, folder: Path, workers: int, retries: int, poll: float, parameters: Mapping[str, Any]
    ) -> None:
        submitit = _package()
        self.cluster = parameters["cluster"]
        self.size = workers
        self.retries = retries
        self.poll = poll
        self.threads = int(parameters.get("cpus_per_task") or 1)
        try:
            self.executor = submitit.AutoExecutor(folder=folder, cluster=self.cluster)
        except RuntimeError as problem:
            raise UserError(
                f"engine slurm: {str(problem).strip().rstrip('.')}.",
                hint="Run it where `sbatch` is, or with cluster=local.",
            ) from problem
        given = {k: v for k, v in parameters.items() if k != "cluster" and v is not None}
        if self.cluster == "local":
            given = {k: v for k, v in given.items() if not k.startswith("slurm_")}
        else:
            given.setdefault("slurm_array_parallelism", workers)
        self.executor.update_parameters(name="stockpot", **given)

    def open(self, function: Callable[[Job], Any], jobs: int) -> SlurmWorkers:
        """The queue takes what it is given."""
        return SlurmWorkers(self, function)

    def run(self, function: Callable[[Job], Any], jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Run every job: one array on SLURM, which bounds how many run; as room is here locally."""
        if self.cluster == "local":
            yield from run_all(self, function, jobs)
            return
        workers = SlurmWorkers(self, function)
        try:
            with self.executor.batch():
                for number, job in enumerate(jobs):
                    workers.submit(number, job)
            for _ in jobs:
                yield workers.next()
        finally:
            workers.close()


class SlurmWorkers:
    """Jobs in the queue."""

    def __init__(self, engine: Slurm, function: Callable[[Any], Any]) -> None:
        self.size = engine.size
        self._engine = engine
        asker = own_mark() if engine.cluster == "local" else ""
        self._call = Call(function, Surroundings.here(), engine.threads, asker)
        self._running: list[tuple[Any, int, Any, int]] = []
        """What submitit gave, number, job and how often it was lost."""

    def submit(self, number: int, job: Any) -> None:
        """Into the queue."""
        self._running.append((self._engine.executor.submit(self._call, job), number, job, 0))

    def next(self) -> Outcome:
        """The next job to end; one that was lost is sent again."""
        while True:
            for place, (sent, number, job, lost) in enumerate(self._running):
                if not sent.done():
                    continue
                del self._running[place]
                problem = sent.exception()
                if problem is None:
                    value, error = sent.result()
                    return Outcome(number, value, error)
                if lost < self._engine.retries:
                    again = self._engine.executor.submit(self._call, job)
                    self._running.append((again, number, job, lost + 1))
                    break
                last = str(problem).strip().splitlines()[-1]
                told = UserError(
                    f"job {sent.job_id} was lost {lost + 1} times ({last})",
                    hint=f"Its log is {sent.paths.stderr}.",
                )
                return Outcome(number, None, told)
            else:
                time.sleep(self._engine.poll)

    def close(self) -> None:
        """Cancel what still waits or runs."""
        for sent, *_ in self._running:
            sent.cancel()
        self._running.clear()


class Call:
    """A function as a job calls it; what is preempted begins again, and finds what it saved."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        surroundings: Surroundings,
        threads: int,
        asker: str = "",
    ) -> None:
        self.function = function
        self.surroundings = surroundings
        self.threads = threads
        self.asker = asker
        """The process of this machine with which the job ends; none where a queue holds it."""

    def __call__(self, job: Any) -> tuple[Any, Exception | None]:
        """The value or the error, as values."""
        if self.asker:
            threading.Thread(target=_end_with, args=(self.asker,), daemon=True).start()
        self.surroundings.enter(self.threads)
        try:
            return self.function(job), None
        except Exception as problem:
            return None, sendable(problem)

    def checkpoint(self, job: Any) -> Any:
        """What submitit puts back into the queue when a job was preempted or timed out."""
        return _package().helpers.DelayedSubmission(self, job)


def _end_with(asker: str) -> None:
    """Kill this process when the one that asked is gone, or submitit's own between the two.

    submitit lets what it starts outlive both; but nobody would fetch the result, and the next run
    does not know that its work is being done.
    """
    between = int(os.environ["SUBMITIT_LOCAL_JOB_ID"])
    while os.getppid() == between and not is_abandoned(asker):
        time.sleep(_LOOK)
    os.kill(os.getpid(), signal.SIGKILL)


def _package() -> Any:
    try:
        import submitit
    except ImportError as problem:
        raise MissingDependencyError(
            "engine slurm: the package submitit is not installed.",
            hint="Install it with: pip install 'stockpot[slurm]'",
        ) from problem
    return submitit


@engines.register("slurm")
def slurm(
    *,
    cluster: Literal["slurm", "local"] = "slurm",
    folder: str = "slurm",
    workers: Natural = 0,
    retries: Natural = 2,
    poll: Annotated[float, Field(gt=0)] = 5.0,
    timeout_min: Count = 240,
    mem_gb: float | None = None,
    cpus_per_task: Count = 1,
    gpus_per_node: Natural | None = None,
    slurm_partition: str | None = None,
    slurm_account: str | None = None,
    slurm_qos: str | None = None,
    slurm_constraint: str | None = None,
    slurm_exclude: str | None = None,
    slurm_array_parallelism: Count | None = None,
    slurm_signal_delay_s: Count | None = None,
    slurm_setup: list[str] | None = None,
    slurm_additional_parameters: dict[str, Any] | None = None,
) -> Slurm:
    """Jobs of a SLURM cluster, through submitit; parameters have its names.

    Args:
        cluster: `slurm`, or `local` for processes of this machine.
        folder: where submitit keeps jobs and logs; on a disk that all nodes see.
        workers: jobs at a time at most; 0 is 256, or one per core here.
        retries: how often a job that was lost is sent again.
        poll: seconds between two looks at the queue.
        timeout_min: minutes of a job.
        mem_gb: memory of a job.
        cpus_per_task: cores of a job.
        gpus_per_node: GPUs of a job.
        slurm_partition: as for `sbatch`, and so are those that follow.
        slurm_account: who pays.
        slurm_qos: quality of service.
        slurm_constraint: features that nodes must have.
        slurm_exclude: nodes to leave out.
        slurm_array_parallelism: jobs of an array that run at a time; `workers` by default.
        slurm_signal_delay_s: seconds between the warning and the end of the time.
        slurm_setup: commands before each job.
        slurm_additional_parameters: any others.
    """
    given = dict(locals())
    own = {key: given.pop(key) for key in ("folder", "workers", "retries", "poll")}
    if not own["folder"]:
        raise BadParameterError("folder: expected a folder, got nothing.")
    most = own["workers"] or (usable_cores() if cluster == "local" else 256)
    return Slurm(Path(own["folder"]), most, own["retries"], own["poll"], given)
