"""The inside of a worker process: it does jobs, says that it lives, and dies with its parent."""

from __future__ import annotations

import copy
import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from stockpot.engine import keep_freed_memory
from stockpot.engine.cores import share_with
from stockpot.errors import UserError

BEAT = 2.0
"""Seconds between two signs of life."""
_PR_SET_PDEATHSIG = 1  # of Linux's prctl.h


def work(
    pipe: Connection,
    function: Callable[[Any], Any],
    threads: int,
    workers: int,
    environment: dict[str, str],
) -> None:
    """Do the jobs that come through a pipe until it is closed.

    Answers are pairs: `("beat", seconds of computing)`, `("done", value)` or `("failed", error)`;
    the first beat says that the worker has started.
    """
    _settle(threads, workers, environment)
    end_with_parent()
    answer = _Answers(pipe)
    answer.beat()
    threading.Thread(target=answer.keep_beating, name="heartbeat", daemon=True).start()
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):
            return
        except Exception as problem:  # a job of which something cannot be imported here
            answer(("failed", _sendable(problem)))
            continue
        try:
            answer(("done", function(job)))
        except BaseException as problem:
            answer(("failed", _sendable(problem)))


def _settle(threads: int, workers: int, environment: dict[str, str]) -> None:
    # The server keeps the variables that it was started with; these are of now.
    os.environ.clear()
    os.environ.update(environment)
    # Workers share the cores; each keeps to its part.
    os.environ["OMP_NUM_THREADS"] = str(threads)
    # Ctrl-C reaches the whole group of processes; only the first one answers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_freed_memory()
    share_with(workers)
    # Otherwise it reads the variable when a job imports it.
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)


def end_with_parent() -> None:
    """Let this process be killed when the one that started it is gone, however that ended.

    The server that workers fork from ends with it, and Linux then ends its children. A thread
    watches the pipe to the parent besides: for other systems, and for servers that serve others.
    """
    with suppress(AttributeError, OSError, TypeError):  # not Linux
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_watch_parent, name="parent", daemon=True).start()


def _watch_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        # Nothing is worth finishing for nobody; what was begun is removed by the next run.
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


class _Answers:
    """The way back, for two threads."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._alone = threading.Lock()

    def __call__(self, answer: tuple[str, Any]) -> None:
        with self._alone:
            self._pipe.send(answer)

    def beat(self) -> None:
        self(("beat", time.process_time()))

    def keep_beating(self) -> None:
        while True:
            time.sleep(BEAT)
            try:
                self.beat()
            except OSError:
                return  # nobody listens any more


def _sendable(problem: BaseException) -> Exception:
    """An error that the parent can read, with the place where it arose."""
    if isinstance(problem, Exception):
        if not isinstance(problem, UserError):
            problem.add_note(f"In a worker process:\n{traceback.format_exc()}")
        try:
            pickle.dumps(problem)
            copy.copy(problem)  # builds it anew from its parts, as the parent will
        except Exception:  # whatever a foreign class does then
            pass
        else:
            return problem
    told = RuntimeError(f"{type(problem).__name__}: {problem}")
    told.add_note(f"In a worker process:\n{traceback.format_exc()}")
    return told
