"""The slopes of a batch: both passes, recorded once as a CUDA graph where they can be.

A step of a small network is some hundreds of kernels that a large GPU finishes sooner than Python
can launch them, and many trainings side by side do not help: their kernels take turns. Recorded,
the two passes are one launch. That is right only for an objective that does the same with every
batch (`Same` in `harden/objective.py`); what its layers draw comes from torch's generator of the
device, which a graph reads anew each time. Optimiser, schedule and augmentations stay outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from stockpot.engine.recording import given_up_cleanly

Loss = Callable[[Tensor, Tensor], Tensor]
"""From pixels and labels to the loss of a step."""
Drawing = Callable[[], AbstractContextManager[None]]
"""Inside, layers draw what belongs to the step."""

_WORTH = 24  # steps to come; recording costs a few
_WARM = 2  # passes in which libraries choose their kernels and make their workspaces
_ROUNDING = 1e-2


class Slopes:
    """Leaves the gradients of a loss in the parameters, as fast as the device allows."""

    def __init__(self, model: nn.Module, learned: Iterable[nn.Parameter], records: bool) -> None:
        """Nothing is recorded yet.

        Args:
            model: its running statistics are kept as they are while a step is recorded.
            learned: where the gradients go.
            records: whether the loss does the same with every batch.
        """
        self._model = model
        self._learned = list(learned)
        self._records = records
        self._graph: torch.cuda.CUDAGraph | None = None
        self._pixels = self._labels = self._loss = torch.empty(0)

    def __call__(
        self, loss: Loss, drawing: Drawing, pixels: Tensor, labels: Tensor, ahead: int
    ) -> Tensor:
        """The loss of this batch; gradients of earlier ones are gone.

        Args:
            loss: the same function at every call, where it is recorded.
            drawing: entered around every pass.
            pixels: of one shape, where it is recorded.
            labels: what is right.
            ahead: how many steps are to come.
        """
        if self._records and self._graph is None:
            self._records = (
                pixels.is_cuda and ahead >= _WORTH and self._record(loss, drawing, pixels, labels)
            )
        if self._graph is None or pixels.shape != self._pixels.shape:
            with drawing():
                return self._plain(loss, pixels, labels)
        return self._replay(drawing, pixels, labels)

    def _plain(self, loss: Loss, pixels: Tensor, labels: Tensor) -> Tensor:
        found = loss(pixels, labels)
        self._forget()
        found.backward()  # type: ignore[no-untyped-call]
        return found.detach()

    def _replay(self, drawing: Drawing, pixels: Tensor, labels: Tensor) -> Tensor:
        assert self._graph is not None
        self._pixels.copy_(pixels)
        self._labels.copy_(labels)
        with drawing():
            self._graph.replay()
        return self._loss.clone()  # the next step will be written over it

    def _record(self, loss: Loss, drawing: Drawing, pixels: Tensor, labels: Tensor) -> bool:
        """Record the step; whether its graph says what the step says."""
        self._pixels, self._labels = pixels.detach().clone(), labels.clone()
        kept = [buffer.clone() for buffer in self._model.buffers()]
        outside = torch.cuda.current_stream(pixels.device)
        own = torch.cuda.Stream(pixels.device)  # type: ignore[no-untyped-call]
        own.wait_stream(outside)
        with torch.cuda.stream(own):
            for _ in range(_WARM):
                with drawing():
                    expected = self._plain(loss, self._pixels, self._labels).clone()
            self._forget()  # gradients are to lie in the memory of the graph
            own.synchronize()
            self._graph = self._captured(loss, drawing)
        outside.wait_stream(own)
        if self._graph is not None:
            found = self._replay(drawing, pixels, labels)
            if not bool((found - expected).abs() <= _ROUNDING * expected.abs().clamp(min=1e-6)):
                self._graph = None
        if self._graph is None:
            self._forget()
        # The step has not been made yet: running statistics are those before it.
        with torch.no_grad():
            for buffer, was in zip(self._model.buffers(), kept, strict=True):
                buffer.copy_(was)
        return self._graph is not None

    def _captured(self, loss: Loss, drawing: Drawing) -> torch.cuda.CUDAGraph | None:
        graph = torch.cuda.CUDAGraph()
        try:
            with drawing(), given_up_cleanly(self._pixels.device):
                # Other threads may go on with their own work on the device meanwhile.
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    self._loss = self._plain(loss, self._pixels, self._labels)
                finally:
                    graph.capture_end()
        except RuntimeError:  # such as a look at a value: not every model can be recorded
            return None
        return graph

    def _forget(self) -> None:
        for parameter in self._learned:
            parameter.grad = None
