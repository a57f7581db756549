"""Where the time of a search goes: generator, model or oracle."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Stopwatch:
    """Seconds by part. Waiting for the device at every part slows a search a little."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self._device = device

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the time of a block."""
        start = self._now()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + self._now() - start

    def _now(self) -> float:
        if self._device is not None and self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()


class NoStopwatch(Stopwatch):
    """Counts nothing and waits for nothing."""

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Do the block."""
        yield
