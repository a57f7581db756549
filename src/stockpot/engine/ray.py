"""Jobs as Ray tasks: on the cluster that `RAY_ADDRESS` names, else on one of this machine alone.

No more tasks are under way than there is room for. A task whose worker or node is lost runs again
elsewhere: jobs save what they make whole, and find it when they are run a second time.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import Field

from stockpot.engine import Job, Outcome, engines, run_all
from stockpot.engine.cores import usable_cores
from stockpot.engine.placing import Packer, unpack
from stockpot.engine.surroundings import Surroundings, sendable
from stockpot.errors import MissingDependencyError, UserError
from stockpot.types import Natural

_LOOK = 2.0
"""Seconds for which the size of a cluster is believed; nodes come and go."""

Share = Annotated[float, Field(gt=0)]
PerhapsShare = Annotated[float, Field(ge=0)]


class Ray:
    """A Ray cluster."""

    places = True
    """Decoded pictures in a job are sent to each machine once."""

    def __init__(self, workers: int, cpus: float, gpus: float | None, retries: int) -> None:
        self._ray = _connected()
        resources = self._ray.cluster_resources()
        self._cpus = cpus
        self._gpus = float(resources.get("GPU", 0) > 0) if gpus is None else gpus
        self._retries = retries
        self._workers = workers

    @property
    def size(self) -> int:
        """How many jobs the cluster has room for now."""
        resources = self._ray.cluster_resources()
        room = resources.get("CPU", 0) / self._cpus
        if self._gpus:
            room = min(room, resources.get("GPU", 0) / self._gpus)
        if self._workers:
            room = min(room, self._workers)
        return max(1, int(room + 1e-9))

    def open(self, function: Callable[[Job], Any], jobs: int) -> RayWorkers:
        """Whatever workers the cluster starts for the tasks."""
        task = self._ray.remote(
            num_cpus=self._cpus,
            num_gpus=self._gpus,
            max_retries=self._retries,
            # A worker keeps the models and data that it has loaded for the next task.
            max_calls=0,
        )(_carry_out)
        return RayWorkers(self._ray, self, function, task, max(1, int(self._cpus)), self._retries)

    def run(self, function: Callable[[Job], Any], jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Run jobs as there is room for them; a failing job does not stop the others."""
        return run_all(self, function, jobs)


class RayWorkers:
    """Tasks under way on a cluster."""

    def __init__(
        self,
        ray: Any,
        engine: Ray,
        function: Callable[[Any], Any],
        task: Any,
        threads: int,
        retries: int,
    ) -> None:
        self._ray = ray
        self._engine = engine
        self._task = task
        self._threads = threads
        self._retries = retries
        self._packer: Packer[Any] = Packer(ray.put)
        self._function = ray.put(function)
        self._surroundings = Surroundings.here()
        self._running: dict[Any, int] = {}
        self._size = (engine.size, time.monotonic())

    @property
    def size(self) -> int:
        """How many jobs there is room for; nodes that join count, those that are lost do not."""
        if time.monotonic() - self._size[1] > _LOOK:
            self._size = (self._engine.size, time.monotonic())
        return self._size[0]

    def submit(self, number: int, job: Any) -> None:
        """Hand a job to the cluster, which waits for a place if there is none."""
        with _unwrapped():
            body, places = self._packer.pack(job)
            reference = self._task.remote(
                self._function, body, self._surroundings, self._threads, *places
            )
        self._running[reference] = number

    def next(self) -> Outcome:
        """The next job to end."""
        with _unwrapped():
            (done, *_), _ = self._ray.wait(list(self._running), num_returns=1)
        number = self._running.pop(done)
        try:
            with _unwrapped():
                value, problem = self._ray.get(done)
        except self._ray.exceptions.RayError as lost:
            first = str(lost).strip().splitlines()[0]
            value, problem = None, UserError(
                f"the Ray worker of a job was lost {self._retries + 1} times ({first})",
                hint="Out of memory? Ask for more `cpus` or `gpus` per job.",
            )  # fmt: skip
        return Outcome(number, value, problem)

    def close(self) -> None:
        """Give up tasks that still run; the cluster stays for the next ones."""
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._running.clear()


def _carry_out(
    function: Callable[[Any], Any],
    body: bytes,
    surroundings: Surroundings,
    threads: int,
    *arrays: Any,
) -> tuple[Any, Exception | None]:
    """One job, in a worker of the cluster."""
    surroundings.enter(threads)
    try:
        return function(unpack(body, arrays)), None
    except Exception as problem:
        return None, sendable(problem)


def _connected() -> Any:
    """Ray, connected; nothing is reported to anybody, and no page is served."""
    # Read when Ray is imported.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Else a first program is answered when workers started beforehand have come, and waits for
    # ever if one of them is lost before.
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
    try:
        import ray
    except ImportError as problem:
        raise MissingDependencyError(
            "engine ray: the package ray is not installed.",
            hint="Install it with: pip install 'stockpot[ray]'",
        ) from problem
    if ray.is_initialized():
        return ray
    address = os.environ.get("RAY_ADDRESS")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        with _own_answer_to_signals(), _unwrapped():
            if address and address != "local":
                ray.init(address=address, **quiet)
            else:
                ray.init(address="local", num_cpus=usable_cores(), include_dashboard=False, **quiet)
    except Exception as problem:  # Ray raises plain ones too, of a node that starts too slowly
        where = f"the cluster at RAY_ADDRESS={address}" if address else "a local cluster"
        first = str(problem).strip().splitlines()[0]
        raise UserError(f"engine ray: {where} cannot be used ({first})") from problem
    return ray


@contextmanager
def _own_answer_to_signals() -> Iterator[None]:
    """Leave SIGTERM to who called: Ray, once started, would end the program with a code of its own.

    One that came meanwhile, and that Ray answered, is sent again.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Ray leaves signals alone then
        return
    before = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL
    try:
        yield
    except SystemExit as stop:
        signal.signal(signal.SIGTERM, before)
        if stop.code == signal.SIGTERM:
            os.kill(os.getpid(), signal.SIGTERM)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _unwrapped() -> Iterator[None]:
    """Let what a signal raises pass: Ray's compiled code makes it the cause of another error."""
    try:
        yield
    except SystemError as problem:
        cause = problem.__cause__
        if cause is not None and not isinstance(cause, Exception):
            raise cause from None
        raise


@engines.register("ray")
def ray_engine(
    *,
    workers: Natural = 0,
    cpus: Share = 1.0,
    gpus: PerhapsShare | None = None,
    retries: Natural = 3,
) -> Ray:
    """Jobs as Ray tasks: on the cluster of RAY_ADDRESS, else on one of this machine.

    Args:
        workers: jobs at a time at most; 0 takes as many as the cluster has room for.
        cpus: cores of a job; a part of one is allowed.
        gpus: GPUs of a job, such as 0.25; one each by default where the cluster has any.
        retries: how often a job is run again when its worker or node was lost.
    """
    return Ray(workers, cpus, gpus, retries)
