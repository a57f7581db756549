"""Parts of a batch side by side on a processor, each with half of torch's threads.

    logits = torch.cat(side_by_side(model, pixels.split(64)))

Inside one operation torch's threads wait for each other at its end, and the next one begins when
the last of them is there. On two parts of their own they need not wait, which is faster, and many
times as fast where another program takes one of the cores. What is computed of a part does not
depend on where it runs.

For functions that keep nothing between calls, draw no random numbers, and read what others leave
alone meanwhile.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from typing import TypeVar

import torch

P = TypeVar("P")
R = TypeVar("R")

LANES = 2
"""This thread and one beside it. Python itself runs in one thread at a time, so more would wait."""
_busy = threading.Lock()
"""The number of threads is one for the whole process: one at a time may change it."""


def lanes() -> int:
    """How many parts can run at a time now."""
    # Whoever looks at every operation (a counter of FLOPs, say) hears those of its own thread.
    heard = torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack()
    return LANES if not heard and _can_share() and torch.get_num_threads() >= LANES else 1


def part_size(count: int, most: int) -> int:
    """Of how many rows parts should be, so that all lanes have equally much to do.

    Args:
        count: rows in all.
        most: that a part may have.
    """
    beside = lanes()
    rounds = -(-count // (most * beside))
    return max(1, min(most, -(-count // max(1, rounds * beside))))


def side_by_side(work: Callable[[P], R], parts: Sequence[P]) -> list[R]:
    """What the work makes of each part, in their order."""
    if len(parts) < 2 or lanes() == 1 or not _busy.acquire(blocking=False):
        return [work(part) for part in parts]
    before = torch.get_num_threads()
    beside: Future[None] | None = None
    turns = iter(range(len(parts)))
    taking = threading.Lock()
    made: dict[int, R] = {}

    def walk() -> None:
        for place in _taken(turns, taking):
            made[place] = work(parts[place])

    mode = _Mode(before // LANES)
    try:
        torch.set_num_threads(before // LANES)
        beside = _helper().submit(mode.around, walk)
        walk()
        beside.result()
    finally:
        # An error here or an interruption: the other one ends with the part that it is at.
        with taking:
            for _ in turns:
                pass
        if beside is not None:
            beside.exception()
        torch.set_num_threads(before)
        _busy.release()
    return [made[place] for place in range(len(parts))]


def _taken(turns: Iterator[int], taking: threading.Lock) -> Iterator[int]:
    while True:
        with taking:
            place = next(turns, None)
        if place is None:
            return
        yield place


class _Mode:
    """What torch keeps for every thread by itself, as it is in the thread that makes this."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.inference = torch.is_inference_mode_enabled()
        self.gradients = torch.is_grad_enabled()
        self.casts = torch.is_autocast_enabled("cpu")
        self.half = torch.get_autocast_dtype("cpu")

    def around(self, walk: Callable[[], None]) -> None:
        """Do something in this mode."""
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode(self.inference))
            stack.enter_context(torch.set_grad_enabled(self.gradients))
            stack.enter_context(torch.autocast("cpu", self.half, enabled=self.casts))
            if torch.get_num_threads() != self.threads:
                torch.set_num_threads(self.threads)
            walk()


@cache
def _helper() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(LANES - 1, thread_name_prefix="lane")


@cache
def _can_share() -> bool:
    """Only OpenMP counts threads for each caller; other pools are fixed when they have begun."""
    return "parallel backend: OpenMP" in torch.__config__.parallel_info()


def _forked() -> None:
    """A child has the locks of its parent and none of its threads."""
    global _busy
    _busy = threading.Lock()
    _helper.cache_clear()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no forks
    os.register_at_fork(after_in_child=_forked)
