"""Corruptions done once on a few pictures, so that what they need is there when many come.

The first time, modules are read, tables made, kernels loaded and compared with plain operations.
On a GPU that takes a second; a thread does it while a model is loaded and pictures are decoded.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from typing import Literal

import torch

from stockpot.corrupt.apply import corrupt
from stockpot.corrupt.constants import Profile
from stockpot.corrupt.weather.frost import Overlays, frost_ahead
from stockpot.datasets.stream.transfer import moved
from stockpot.types import ImageSize

_FEW = 8
_begun: dict[Hashable, threading.Thread] = {}
_lock = threading.Lock()


def rehearse(
    cells: Sequence[tuple[str, float]],
    size: ImageSize,
    device: torch.device,
    *,
    profile: Profile | Literal["auto"],
    overlays: Overlays,
) -> threading.Thread:
    """Begin to rehearse the corruptions of a grid, once in a process; who needs them joins it.

    Args:
        cells: corruptions and severities; of each corruption the last severity is tried.
        size: of the pictures.
        device: where they will be.
        profile: whose constants.
        overlays: what frost is made of.
    """
    tried = dict(cells)
    what = (tuple(tried.items()), size, str(device), profile, overlays)
    with _lock:
        if what not in _begun:
            if "frost" in tried:
                frost_ahead(overlays)
            work = (tried, size, device, profile)
            # Not a daemon: a process that ended while torch is at work would be aborted.
            _begun[what] = threading.Thread(target=_go_through, args=work, name="rehearsal")
            _begun[what].start()
        return _begun[what]


@torch.no_grad()  # a thread has a mode of its own
def _go_through(
    tried: dict[str, float],
    size: ImageSize,
    device: torch.device,
    profile: Profile | Literal["auto"],
) -> None:
    generator = torch.Generator().manual_seed(0)
    try:
        noise = torch.randint(0, 256, (_FEW, 3, *size), dtype=torch.uint8, generator=generator)
        few = moved(noise, device)
        for name, severity in tried.items():
            if name != "frost":  # which waits for what was just begun
                corrupt(few, name, severity, profile=profile)
        if device.type == "cuda":  # what is kept will be read on other streams
            torch.cuda.current_stream(device).synchronize()
    except Exception:  # of whatever kind: who corrupts pictures in earnest will hear
        return
