"""A forward pass recorded once and replayed: the host no longer starts kernels one by one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from stockpot.engine.recording import given_up_cleanly


class Captured:
    """A function of pixels of one shape, as a CUDA graph; fewer rows than that are filled up."""

    def __init__(self, run: Callable[[Tensor], Tensor], pixels: Tensor) -> None:
        """Record the function on these pixels.

        Raises:
            RuntimeError: it does what cannot be recorded, such as to wait for a value.
        """
        self._inputs = pixels.clone()
        own = torch.cuda.Stream(pixels.device)  # type: ignore[no-untyped-call]
        own.wait_stream(torch.cuda.current_stream(pixels.device))
        with torch.cuda.stream(own):  # libraries set themselves up in the first pass
            run(self._inputs)
        torch.cuda.current_stream(pixels.device).wait_stream(own)
        self._graph = torch.cuda.CUDAGraph()
        # Other threads may decode and copy meanwhile; only this one must keep to the rules.
        recorded = torch.cuda.graph(
            self._graph, stream=_recorder(pixels.device), capture_error_mode="thread_local"
        )
        with given_up_cleanly(pixels.device), recorded:
            self._outputs = run(self._inputs)

    def __call__(self, pixels: Tensor) -> Tensor:
        rows = len(pixels)
        self._inputs[:rows].copy_(pixels)
        self._graph.replay()
        return self._outputs[:rows].clone()


@cache
def _recorder(device: torch.device) -> torch.cuda.Stream:
    # torch's own is one for all devices, on the one that was asked first. And only one for each:
    # torch gives out a few streams by turns, and nobody else may use the one that is recorded.
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
