"""Where the time of results went, beside a floor that was taken in the same run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from stockpot.checkpoints.record import RECORD
from stockpot.results.schema import CellResult
from stockpot.results.store import load_results


def read_results(out: Path) -> list[CellResult]:
    """The results that a command wrote into a folder."""
    return list(load_results(out))


def seconds_by_stage(results: Iterable[CellResult]) -> Counter[str]:
    """Seconds of the clock by stage, of all results together."""
    found: Counter[str] = Counter()
    for result in results:
        found.update(result.cost.stages)
    return found


def print_stages(results: Iterable[CellResult], floor: float, name: str = "passes") -> None:
    """A line for each stage: its seconds, and how much of the floor that is.

    Args:
        results: whose stages are told.
        floor: seconds that the bare work takes, by the clock.
        name: what the floor is.
    """
    print_each(seconds_by_stage(results), floor, name)


def recorded_stages(folder: Path) -> dict[str, float]:
    """Seconds by stage that the record of a made model tells; none where it tells none."""
    record = folder / RECORD
    if not record.is_file():
        return {}
    found: dict[str, float] = json.loads(record.read_text())["details"].get("stages", {})
    return found


def profiled_stages(trace: Path) -> dict[str, float]:
    """Seconds by stage of a command that was given `--profile`."""
    found: dict[str, float] = json.loads(trace.read_text())["otherData"]["seconds"]
    return found


def print_each(stages: Mapping[str, float], floor: float, name: str) -> None:
    """A line for each stage, as `print_stages` does."""
    for stage, seconds in stages.items():
        if seconds < 0.005:
            continue
        print(f"  {stage:12s} {seconds:8.2f} s  {seconds / floor:6.2f} of the {name}")
