"""What workers of other engines are given in the tests; it imports little."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

GATE = "STOCKPOT_TEST_GATE"


def job(number: int) -> int:
    if number == 3:
        raise ValueError("three")
    return number * number


def through_the_gate(job: Any) -> Any:
    """Leave a file with the process, wait until somebody says go, and measure the cells."""
    gate = Path(os.environ[GATE])
    (gate / f"{os.getpid()}").touch()
    while not (gate / "go").exists():
        time.sleep(0.02)
    from stockpot.measure.together.sent import carry_out

    return carry_out(job)


def die_once(place: str) -> str:
    """Be killed the first time."""
    if not Path(place).exists():
        Path(place).touch()
        os._exit(9)
    return "alive"
