"""Whether a model remembers: what it answered before must not change what it answers next."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from stockpot.attack.checks.forward_pass import modules_behind

_ROUNDING = 1e-4


@torch.no_grad()
def changes(model: Callable[[Tensor], Tensor], images: Tensor) -> bool:
    """Whether looking at images changes the model or, with the same dice, its next answer."""
    few = images[:32]
    if not len(few):
        return False
    with same_dice(few.device):
        first = model(few)  # also fills what a model lays by once, such as resized positions
    before = _contents(model)
    with same_dice(few.device):
        second = model(few)
    return _contents(model) != before or differ(first, second)


def differ(first: Tensor, second: Tensor) -> bool:
    """Whether some outputs differ by more than rounding."""
    first, second = first.float(), second.float()
    scale = first.abs().amax(dim=1, keepdim=True).clamp(min=1e-12)
    return bool(((first - second).abs() / scale).amax() > _ROUNDING)


@contextmanager
def same_dice(device: torch.device) -> Iterator[None]:
    """Every global generator at a fixed seed; each gets its own state back afterwards."""
    kept, python = np.random.get_state(), random.getstate()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(0)
        np.random.seed(0)
        random.seed(0)
        try:
            yield
        finally:
            np.random.set_state(kept)
            random.setstate(python)


def _contents(model: object) -> list[tuple[int, int]]:
    """Which tensors the model holds, and how often each was written to."""
    tensors = [
        tensor
        for module in modules_behind(model)
        for tensor in (
            *module.parameters(recurse=False),
            *module.buffers(recurse=False),
            *(value for value in vars(module).values() if isinstance(value, Tensor)),
        )
    ]
    return [(id(tensor), tensor._version) for tensor in tensors]
