"""Several trainings of one base at once, each in a process of its own.

One training leaves a large GPU idle half the time; what it learns does not depend on the others.
Processes are started early, so that what they read is there when the base is.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import torch
from experts import JOINT, Training, expert, smaller, together
from tasks import read

from stockpot.datasets.dataset import Dataset

Sets = dict[str, Dataset]
"""What can be trained on: the images of each task, and of all of them together."""


class Order(NamedTuple):
    """One training: on which set, from which base, how and where to."""

    data: str
    base: Path
    training: Training
    seed: int
    device: str
    out: Path
    steps: int


def sets(folder: Path, limit: int | None, device: str) -> Sets:
    """The sets to train on, of tasks that were written to a folder."""
    tasks = read(folder)
    tasks = tasks if limit is None else smaller(tasks, limit)
    return {name: task.fit for name, task in tasks.items()} | {JOINT: together(tasks, device)}


def train(order: Order, data: Dataset) -> float:
    """Train, and say how many seconds it took."""
    began = time.perf_counter()
    expert(order.base, data, order.training, order.seed, order.device, order.out, order.steps)
    return round(time.perf_counter() - began, 1)


class Hands:
    """Processes that wait for orders."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def all(self, orders: list[Order], late: Callable[[], bool]) -> Iterator[tuple[Order, float]]:
        """Follow the orders, the longest first; each with its seconds as it ends.

        Where it gets late, those that no process has begun are left.
        """
        waiting: dict[Future[float], Order] = {
            self._pool.submit(_follow, order): order
            for order in sorted(orders, key=lambda order: -order.steps)
        }
        for done in as_completed(waiting):
            if late():
                for other in waiting:
                    other.cancel()
            if not done.cancelled():
                yield waiting[done], done.result()


@contextmanager
def hands(count: int, folder: Path, limit: int | None, device: str) -> Iterator[Hands | None]:
    """So many processes, reading what they will need; none where one training at a time will do."""
    if count < 2:
        yield None
        return
    context = get_context("spawn")  # CUDA does not survive a fork
    threads = max(1, (os.cpu_count() or 1) // count)
    with ProcessPoolExecutor(count, context, _wake, (folder, limit, device, threads)) as pool:
        for _ in range(count):
            pool.submit(int)  # a process is started when there is something to do
        yield Hands(pool)


_sets: Sets = {}


def _wake(folder: Path, limit: int | None, device: str, threads: int) -> None:
    torch.set_num_threads(threads)  # or each would take all processors
    # Otherwise imported by the first training, for seconds, while the GPU waits.
    importlib.import_module("transformers.models.clip.modeling_clip")
    _sets.update(sets(folder, limit, device))


def _follow(order: Order) -> float:
    return train(order, _sets[order.data])
