"""Where the time of what makes a model went, for its record."""

from __future__ import annotations

import time


class Laps:
    """Seconds by what was done, one thing after the other."""

    def __init__(self) -> None:
        self._since = time.perf_counter()
        self._seconds: dict[str, float] = {}

    def end(self, name: str) -> None:
        """What was done since the last one ended."""
        now = time.perf_counter()
        self._seconds[name] = self._seconds.get(name, 0.0) + now - self._since
        self._since = now

    def told(self) -> dict[str, object]:
        """For the record: all seconds, and by what was done where that is more than nothing."""
        each = {name: round(spent, 2) for name, spent in self._seconds.items()}
        return {
            "seconds": round(sum(self._seconds.values()), 2),
            "stages": {name: spent for name, spent in each.items() if spent},
        }
