"""How far Python is ahead of a GPU."""

from __future__ import annotations

from collections import deque

import torch

LEAD = 6
"""Steps that Python may be ahead of a GPU: enough that it never waits for Python, and few, so that
whose turn it is is decided late, and a model that has seen all ends before the others have."""
HIDES = 4
"""Steps beside which Python can prepare another model: the GPU has work as long as that takes."""


class Queued:
    """Steps that a GPU has still to do; a processor has done them when Python goes on."""

    def __init__(self) -> None:
        self._ends: deque[torch.cuda.Event] = deque()

    def add(self, device: torch.device) -> None:
        """A step was queued; waits where Python is too far ahead."""
        if device.type != "cuda":
            return
        self._ends.append(torch.cuda.current_stream(device).record_event())
        if len(self._ends) > LEAD:
            self._ends.popleft().synchronize()

    @property
    def left(self) -> int:
        """How many are not done yet."""
        while self._ends and self._ends[0].query():  # type: ignore[no-untyped-call]
            self._ends.popleft()
        return len(self._ends)
