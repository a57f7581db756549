"""What a model answers: its best output, and nothing where an output is NaN or infinite.

The largest of several NaNs is the first of them, so that a model which says nothing would be right
about class 0 and no attack could change its mind. Whoever turns outputs into answers asks here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

NONE = -1
"""The number of no class."""
NON_FINITE = "non_finite"
"""The name under which results carry that some outputs were NaN or infinite."""


def finite(outputs: Tensor) -> Tensor:
    """For every row whether all its outputs are numbers."""
    # The largest and the least say it: a NaN is both. Nothing as large as the outputs is written.
    outputs = outputs.detach()
    return outputs.amax(dim=1).isfinite() & outputs.amin(dim=1).isfinite()


def predictions(logits: Tensor) -> Tensor:
    """The best column of every row, and `NONE` where a row is not made of numbers."""
    return torch.where(finite(logits), logits.argmax(dim=1), NONE)


def best_columns(logits: Tensor, count: int) -> Tensor:
    """The best columns of every row, as many as that; of equal ones the first, as `argmax` has it.

    Which of them `topk` takes is left to the device: the best of five would be another than the one
    that is the prediction, and the five others on another machine.
    """
    rest, found = logits.detach().clone(), []
    for _ in range(min(count, logits.shape[1])):
        found.append(rest.argmax(dim=1, keepdim=True))
        rest.scatter_(1, found[-1], -torch.inf)
    return torch.cat(found, dim=1)


@dataclass
class Watch:
    """How many outputs of a model were seen, and how many of them were NaN or infinite."""

    seen: int = 0
    _broken: Tensor | int = 0

    @property
    def broken(self) -> int:
        """Rows of outputs with a NaN or an infinity."""
        return int(self._broken)

    @property
    def note(self) -> str:
        """What a reader must know, or nothing."""
        if not self.broken:
            return ""
        return (
            f"{self.broken} of {self.seen} outputs were NaN or infinite: "
            "they are no answers and count as wrong"
        )

    def add(self, outputs: Tensor) -> None:
        """Count the rows of a batch; the device is not waited for.

        A pass that is being captured has no outputs yet, and whoever repeats it decides by others.
        """
        if outputs.is_cuda and torch.cuda.is_current_stream_capturing():
            return
        broken = (~finite(outputs)).sum()
        with _counting:  # parts of a batch may be answered by two threads
            self.seen += len(outputs)
            self._broken = self._broken + broken

    def settle(self) -> None:
        """Bring the count over from the device: others may read it beside its work then."""
        self._broken = self.broken

    def recall(self, seen: int, broken: int) -> None:
        """Count what was seen at another time."""
        self.seen += seen
        self._broken = self._broken + broken


_counting = Lock()
_watches: WeakKeyDictionary[nn.Module, list[Watch]] = WeakKeyDictionary()


def recall(model: nn.Module, seen: int, broken: int) -> None:
    """Let all who watch a model now count answers that it gave at another time."""
    for watch in _watches.get(model, ()):
        watch.recall(seen, broken)


@contextmanager
def watching(model: nn.Module) -> Iterator[Watch]:
    """Count what a model answers meanwhile, copies of it included."""
    watch = Watch()

    # A function, not a method: copies of the model then share the watch.
    def see(module: nn.Module, inputs: object, outputs: object) -> None:
        if isinstance(outputs, Tensor) and outputs.ndim == 2:
            watch.add(outputs.detach())

    see.takes_turns = True  # type: ignore[attr-defined]  # any thread may call it
    handle = model.register_forward_hook(see)
    watches = _watches.setdefault(model, [])
    watches.append(watch)
    try:
        yield watch
    finally:
        handle.remove()
        watches[:] = [other for other in watches if other is not watch]
