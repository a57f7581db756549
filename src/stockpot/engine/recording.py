"""Recording CUDA graphs without harm to what comes after a recording that fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def given_up_cleanly(device: torch.device) -> Iterator[None]:
    """Inside, a graph is recorded; what cannot be recorded raises, and draws go on as before.

    A recording that ends with an error leaves the device's generator believing that it is still
    recorded, so that the next draw of anybody in the process raises. It gets a state of its own
    with the same numbers to come.
    """
    try:
        yield
    except BaseException:
        at = torch.cuda.current_device() if device.index is None else device.index
        generator = torch.cuda.default_generators[at]
        generator.graphsafe_set_state(generator.clone_state())
        raise
