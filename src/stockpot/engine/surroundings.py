"""What a worker elsewhere must have as the process that asked: its folder and our variables."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NamedTuple

from stockpot.engine import keep_freed_memory
from stockpot.engine.cores import share_with, usable_cores
from stockpot.errors import UserError

_OURS = ("STOCKPOT_", "HF_")


class Surroundings(NamedTuple):
    """Where a program runs; a plain value."""

    folder: str
    variables: dict[str, str]

    @staticmethod
    def here() -> Surroundings:
        """Those of this process."""
        ours = {key: value for key, value in os.environ.items() if key.startswith(_OURS)}
        return Surroundings(os.getcwd(), ours)

    def enter(self, threads: int) -> None:
        """Take them on, in a worker that computes with so many threads."""
        with contextlib.suppress(OSError):  # another machine may not have it; whole paths still do
            os.chdir(self.folder)
        for name in [key for key in os.environ if key.startswith(_OURS)]:
            if name not in self.variables:
                del os.environ[name]
        os.environ.update(self.variables)
        keep_freed_memory()
        share_with(usable_cores() // threads)
        os.environ["OMP_NUM_THREADS"] = str(threads)
        if "torch" in sys.modules:  # it has read the variable already
            sys.modules["torch"].set_num_threads(threads)


def sendable(problem: Exception) -> Exception:
    """An error as it can be sent; a foreign one may not survive the way."""
    if isinstance(problem, UserError):
        return problem
    return RuntimeError(f"{type(problem).__name__}: {problem}")
