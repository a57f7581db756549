"""Batches on a device; to a GPU they travel beside its work."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor


def moved(batch: Tensor, device: torch.device) -> Tensor:
    """A batch on the device.

    A copy to a GPU comes from pinned memory and goes through a stream of its own: the host does not
    wait for it, and it runs while the GPU still works on the batch before. Work that is queued
    later on the current stream waits for the copy.
    """
    if device.type != "cuda" or batch.device.type != "cpu":
        return batch.to(device)
    lane = _lane(device)
    with torch.cuda.stream(lane):
        there = batch.pin_memory().to(device, non_blocking=True)
    current = torch.cuda.current_stream(device)
    current.wait_stream(lane)
    # Its memory came from the lane's pool and must not go back there while others read it.
    there.record_stream(current)
    return there


@cache
def _lane(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
