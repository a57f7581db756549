"""Batches on a device; to a GPU they travel beside its work, and one is always ahead."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

PIECE = 16 << 20
"""Bytes of pinned memory in which a batch travels: the system takes a tenth of a second to pin a
whole batch of photographs, and the driver lets nobody else do anything meanwhile."""


class Moving(NamedTuple):
    """A batch on its way to a device."""

    there: Tensor
    whole: torch.cuda.Event | None

    def arrived(self) -> Tensor:
        """The batch; work that is queued later on the current stream waits for it."""
        if self.whole is not None:
            current = torch.cuda.current_stream(self.there.device)
            current.wait_event(self.whole)
            # Its memory came from the lane's pool and must not go back there while others read it.
            self.there.record_stream(current)
        return self.there


def sent(batch: Tensor, device: torch.device) -> Moving:
    """Send a batch to a device.

    A copy to a GPU comes from pinned memory and goes through a stream of its own: nobody waits for
    it, and it runs while the GPU still works on the batch before.
    """
    if device.type != "cuda" or batch.device.type != "cpu":
        return Moving(batch.to(device), None)
    lane = _lane(device)
    # Grey pictures are one channel seen three times, which are no bytes in a row.
    batch = batch.contiguous()
    with torch.cuda.stream(lane):
        there = torch.empty(batch.shape, dtype=batch.dtype, device=device)
        here, room = (each.view(-1).view(torch.uint8) for each in (batch, there))
        for start in range(0, len(here), PIECE):
            # torch gives a piece again when it has been sent.
            piece = torch.empty(min(PIECE, len(here) - start), dtype=torch.uint8, pin_memory=True)
            piece.copy_(here[start : start + PIECE])
            room[start : start + PIECE].copy_(piece, non_blocking=True)
        return Moving(there, lane.record_event())


def moved(batch: Tensor, device: torch.device) -> Tensor:
    """A batch on the device."""
    return sent(batch, device).arrived()


def all_moved(
    source: Iterator[tuple[Tensor, ...]], device: torch.device
) -> Iterator[tuple[Tensor, ...]]:
    """Batches on a device; for a GPU the next one is pinned and sent by a thread meanwhile."""

    def sending() -> Generator[tuple[Moving, ...]]:
        for batches in source:
            yield tuple(sent(batch, device) for batch in batches)

    for batches in one_ahead(sending()) if device.type == "cuda" else sending():
        yield tuple(batch.arrived() for batch in batches)


def one_ahead(source: Generator[T]) -> Iterator[T]:
    """The same items, the next of which a thread makes while one is used."""
    nothing = object()
    with ThreadPoolExecutor(1, thread_name_prefix="send") as thread:
        try:
            coming = thread.submit(next, source, nothing)
            while (item := coming.result()) is not nothing:
                coming = thread.submit(next, source, nothing)
                yield item  # type: ignore[misc]
        finally:
            thread.submit(source.close).result()


@cache
def _lane(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
