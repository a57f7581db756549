"""Which GPU is torch's current one while somebody works on another."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def as_current(device: torch.device) -> AbstractContextManager[object]:
    """Make a device torch's current one meanwhile, in this thread.

    Kernels of Triton run on the current one, wherever their tensors are, and a recording of
    `torch.cuda.graph` without a stream hears that one.
    """
    if device.type != "cuda" or device.index in (None, torch.cuda.current_device()):
        return nullcontext()
    return torch.cuda.device(device)
