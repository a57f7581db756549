"""Where work runs: in this process, in several, or elsewhere; on which device, in what memory.

An engine takes a function and a list of jobs and yields what became of each as it is done. Jobs
are plain values that can be pickled; what a job makes is saved by the job itself, so an engine
that dies loses nothing that was finished. Work that builds on other work: see `schedule`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from stockpot.errors import BadParameterError
from stockpot.registry import Kind, Tags

if TYPE_CHECKING:
    import torch

Job = TypeVar("Job")


class Outcome(NamedTuple):
    """What became of one job: its value, or the error that ended it."""

    job: int
    value: Any
    error: Exception | None


class Workers(Protocol):
    """Open for jobs, which are told apart by a number."""

    @property
    def size(self) -> int:
        """How many jobs run at a time."""
        ...

    def submit(self, number: int, job: Any) -> None:
        """Take a job."""
        ...

    def next(self) -> Outcome:
        """Wait for the next job to end; there must be one."""
        ...

    def close(self) -> None:
        """Let the workers go; jobs that still run are given up."""
        ...


class Engine(Protocol):
    """Something that can run jobs."""

    @property
    def size(self) -> int:
        """How many jobs run at a time."""
        ...

    def open(self, function: Callable[[Job], Any], jobs: int) -> Workers:
        """Workers for a function, for about so many jobs."""
        ...

    def run(self, function: Callable[[Job], Any], jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Run every job; yield outcomes in the order in which they finish."""
        ...


engines = Kind[Callable[..., "Engine"]]("engines", noun="engine", package="stockpot.engine").tagged(
    Tags
)


def run_all(
    engine: Engine, function: Callable[[Job], Any], jobs: Sequence[Job]
) -> Iterator[Outcome]:
    """Run every job as workers become free; a failing one does not stop the others."""
    workers = engine.open(function, len(jobs))
    try:
        left = iter(enumerate(jobs))
        running = 0
        for _ in range(len(jobs)):
            while running < workers.size and (job := next(left, None)) is not None:
                workers.submit(*job)
                running += 1
            yield workers.next()
            running -= 1
    finally:
        workers.close()


def pick_device(name: str) -> torch.device:
    """`auto` is the first accelerator there is, else the CPU."""
    import torch

    if name == "auto":
        # To ask the driver takes milliseconds while threads load models; who uses it knows it.
        known: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        there = known or torch.cuda.is_available()
        return torch.device("cuda" if there else "cpu")
    try:
        device = torch.device(name)
        _try(device)
    except (RuntimeError, AssertionError, NotImplementedError) as problem:
        reason = str(problem).strip().splitlines()[0]
        known = "device type at start of device string" not in reason
        raise BadParameterError(
            f"device: expected one that torch can use here, got {name!r}"
            + (f" ({reason.rstrip('.')})." if known else "."),
            hint="Known: auto, cpu, cuda, cuda:0, mps, ...",
        ) from problem
    return device


@cache
def _try(device: torch.device) -> None:
    """Raise where it cannot be used; once it could, nobody waits for it again."""
    import torch

    torch.zeros(1, device=device).item()  # `meta` is a device too, and holds no values


def device_name(device: torch.device) -> str:
    """The device in words, such as `NVIDIA H200` or `cpu, 2 threads`."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type}, {torch.get_num_threads()} threads"


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of glibc's malloc.h
_LARGEST_BLOCK = 32 << 20  # the most that glibc accepts
_KEPT = 512 << 20


@cache
def keep_freed_memory() -> bool:
    """Let this process keep up to 512 MB that it has freed; says whether the system can do that.

    On Linux the C library gives large blocks back to the system as soon as they are freed, and
    every page of a new block costs a fault when it is first written. An attack allocates and frees
    the same activations thousands of times: there the faults can take a fifth of the time. The
    setting holds for a whole process, so a program makes it (the command line and the workers of
    an engine do), and a library call never does.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False  # not glibc: other allocators keep memory by themselves
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK) and mallopt(_TRIM_THRESHOLD, _KEPT))
