"""What workers of other engines are given in the tests; it imports little."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stockpot.engine.choice import chosen_engine
from stockpot.files import own_mark


def job(number: int) -> int:
    if number == 3:
        raise ValueError("three")
    return number * number


class Measuring:
    """Measures the cells of a job, in a worker to whom something happens first.

    That is when the worker reads this, before it reads a job and imports torch for it.
    """

    def __init__(self, first: Callable[[str], None], place: Path) -> None:
        self.first = first
        self.place = str(place)

    def __call__(self, job: Any) -> Any:
        from stockpot.measure.together.sent import carry_out

        return carry_out(job)

    def __reduce__(self) -> tuple[Any, ...]:
        return _after, (self.first, self.place)


def _after(first: Callable[[str], None], place: str) -> Measuring:
    first(place)
    return Measuring(first, Path(place))


def come_through(gate: str) -> None:
    """Leave a file with the process, and wait until somebody says go."""
    Path(gate, f"{os.getpid()}").touch()
    while not Path(gate, "go").exists():
        time.sleep(0.02)


def die_once(place: str) -> None:
    """Be killed the first time."""
    if not Path(place).exists():
        Path(place).touch()
        os._exit(9)


def wait_for_ever(place: str) -> None:
    """Leave a file that tells of the process, and wait for nobody."""
    Path(place, f"{own_mark()}.mark").touch()
    time.sleep(60)


def ask_for_ever(engine: dict[str, Any], place: str) -> None:
    """Have another process wait on an engine."""
    list(chosen_engine(engine).run(wait_for_ever, [place]))
