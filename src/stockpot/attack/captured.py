"""Steps of a search as CUDA graphs: a whole step is launched at once, and no Python runs in it.

A step on a small network is some two hundred kernels that an H200 finishes sooner than Python can
launch them. Captured, they are one launch. A graph has fixed shapes and fixed places in memory:
what a step reads is copied there first, and what it gives stays true until the next call.

Not everything can be captured: a model that asks the device for a value, or draws from a generator
of its own. Then, and where a graph says something else than the step itself, the step runs plainly.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from stockpot.engine.recording import given_up_cleanly

Tensors = tuple[Tensor, ...]
Step = Callable[..., Tensors]

_WORTH = 12  # a capture costs about three plain steps, and saves up to half of each that follows
_ROUNDING = 1e-2


class Graphs:
    """The captured steps of one model, by what they do and by the shapes that they do it to."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._known: dict[Hashable, Step] = {}
        self.sizes: set[int] = set()
        """The batch sizes for which some step has been captured."""
        self.usable = True

    def run(self, key: Hashable, ahead: int, step: Step, *inputs: Tensor) -> Tensors:
        """One step; `key` names all that it depends on besides its inputs.

        Args:
            key: the same for the same function only.
            ahead: how many more steps of this kind are to come.
            step: from tensors to tensors, without a look at their values.
            inputs: what it reads.
        """
        shapes = tuple((tuple(given.shape), given.dtype) for given in inputs)
        place = key, shapes
        if place not in self._known and self.usable and ahead >= _WORTH:
            graph = self.capture(step, inputs)
            if graph is None:
                self.usable = False  # what cannot be captured for one size cannot for another
            else:
                self._known[place] = graph
                self.sizes.add(len(inputs[0]))
        return self._known.get(place, step)(*inputs)

    def capture(self, step: Step, inputs: Tensors) -> Step | None:
        """The step for tensors like these as a graph, or nothing where that is not possible."""
        raise NotImplementedError


class CudaGraphs(Graphs):
    """On one CUDA device; all graphs share their memory, as no two of them run at a time."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def capture(self, step: Step, inputs: Tensors) -> Step | None:
        """Capture, and compare what the graph says with what the step says."""
        buffers = [given.detach().clone() for given in inputs]
        outside = torch.cuda.current_stream(self.device)
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(outside)
        with torch.cuda.stream(self._stream):
            # Libraries make their workspaces and plans in a pass that is not captured. What that
            # raises is the model's own mistake and goes to the caller.
            expected = [given.clone() for given in step(*buffers)]
            self._stream.synchronize()
            try:
                with given_up_cleanly(self.device):
                    # Other threads may go on with their own work on the device meanwhile.
                    graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                    try:
                        outputs = _apart(step(*buffers), buffers)
                    finally:
                        graph.capture_end()
            except Exception:  # of whatever kind: not every model can be captured
                outside.wait_stream(self._stream)
                return None
        outside.wait_stream(self._stream)

        def replay(*given: Tensor) -> Tensors:
            moved = [(to, new) for to, new in zip(buffers, given, strict=True) if to is not new]
            torch._foreach_copy_([to for to, _ in moved], [new for _, new in moved])
            graph.replay()
            return outputs

        return replay if _alike(expected, replay(*inputs)) else None


def graphs_for(device: torch.device) -> Graphs | None:
    """Where steps of a search on a device are captured; nothing where that is not possible."""
    return CudaGraphs(device) if device.type == "cuda" else None


def _apart(outputs: Tensors, buffers: list[Tensor]) -> Tensors:
    """The outputs, copied where they lie in the place of another input.

    Outputs of one step are inputs of the next: copied there all at once, one would overwrite what
    another has yet to read.
    """
    taken = {buffer.untyped_storage().data_ptr() for buffer in buffers}
    return tuple(
        given
        if place < len(buffers) and given is buffers[place]
        else given.clone()
        if given.untyped_storage().data_ptr() in taken
        else given
        for place, given in enumerate(outputs)
    )


def _alike(expected: list[Tensor], found: Tensors) -> bool:
    """Whether the numbers of each image agree.

    Pixels are not compared: they follow the signs of slopes, which rounding may turn.
    """
    for one, two in zip(expected, found, strict=True):
        if one.ndim == 1 and one.is_floating_point():
            known = one.isfinite()  # before anything is found a loss is infinite
            gap = torch.where(known, one - two, 0).abs().amax()
            scale = torch.where(known, one, 0).abs().amax().clamp(min=1e-6)
            if not bool((known == two.isfinite()).all() & (gap <= _ROUNDING * scale)):
                return False
    return True
