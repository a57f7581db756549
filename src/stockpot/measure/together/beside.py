"""On a GPU the pictures of the next batch are made beside the model that looks at the last one.

They are made on a stream of their own: corrupting and classifying then take the time of the longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from stockpot.stages import Stage, stage


class Shown(Protocol):
    """A batch as a model sees it, on its device, whatever else is said of it."""

    @property
    def pixels(self) -> Tensor: ...


S = TypeVar("S", bound=Shown)


def beside(source: Iterator[S], device: torch.device, waits: Stage = "decode") -> Iterator[S]:
    """The same items; on a GPU each is made on a second stream while the last one is looked at.

    One item is made ahead, and Python is never more than two items ahead of the GPU, so that
    memory is that of a few items.
    """
    if device.type != "cuda":
        yield from source
        return
    first, second = torch.cuda.current_stream(device), second_stream(device)
    second.wait_stream(first)

    def made() -> tuple[S, torch.cuda.Event] | None:
        with torch.cuda.stream(second):
            item = next(source, None)
            return None if item is None else (item, second.record_event())

    looked_at: torch.cuda.Event | None = None
    coming = made()
    while coming is not None:
        item, whole = coming
        with stage(waits):
            first.wait_event(whole)
        # Freed by Python, its memory must wait for the stream that still reads it.
        item.pixels.record_stream(first)
        coming = made()
        yield item
        if looked_at is not None:
            looked_at.synchronize()
        looked_at = first.record_event()


@cache
def second_stream(device: torch.device) -> torch.cuda.Stream:
    """The stream on which pictures are made."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
