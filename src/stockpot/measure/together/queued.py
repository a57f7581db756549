"""How far Python is ahead of a GPU."""

from __future__ import annotations

from collections import deque

import torch

LEAD = 0.25
"""Seconds of work that may be queued: enough that a GPU never waits for Python, and few, so that
whose turn it is is decided late, and a model that has seen all ends before the others have."""
HIDES = 0.15
"""Seconds beside which Python can prepare another model: the GPU has work as long as that takes."""
_FEW = 3
"""Steps that may be queued however long they take."""
_MANY = 128
"""Steps that may be queued however short they are: what they read stays on the GPU until then."""
_GUESS = LEAD / 6
"""Seconds of a step of a model that has not taken one."""


class Queued:
    """Steps that a GPU has still to do; a processor has done them when Python goes on."""

    def __init__(self) -> None:
        self._ends: deque[tuple[int, torch.cuda.Event]] = deque()
        self._last: torch.cuda.Event | None = None
        self._takes: dict[int, float] = {}
        """Seconds of a step of each model: the least, since others may have waited for Python."""

    def add(self, device: torch.device, model: int) -> None:
        """A step of a model was queued; waits where Python is too far ahead.

        Args:
            device: where.
            model: its number.
        """
        if device.type != "cuda":
            return
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end.record(torch.cuda.current_stream(device))
        self._ends.append((model, end))
        while len(self._ends) > _FEW and (self.seconds > LEAD or len(self._ends) > _MANY):
            self._ends[0][1].synchronize()

    @property
    def seconds(self) -> float:
        """How long what is not done yet will take, as far as one can tell."""
        while self._ends and self._ends[0][1].query():  # type: ignore[no-untyped-call]
            model, end = self._ends.popleft()
            if self._last is not None:
                took = self._last.elapsed_time(end) / 1000
                self._takes[model] = min(took, self._takes.get(model, took))
            self._last = end
        return sum(self._takes.get(model, _GUESS) for model, _ in self._ends)
