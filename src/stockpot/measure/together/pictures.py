"""Pictures that several models go through in step: each batch is made once and shown to all.

`shared` gives everybody who names the same pictures the same batches. The last batch is kept, so
those who go in step share it and memory does not grow with their number; who falls behind makes
pictures of its own, with the same bytes.

On a GPU the pictures of the next batch are made beside the model that looks at the last one, on a
stream of their own (`beside`): corrupting and classifying then take the time of the longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from functools import cache
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from stockpot.datasets.dataset import Batch, Dataset, TensorImages
from stockpot.datasets.load import load_dataset
from stockpot.engine.stages import Stage, stage
from stockpot.measure.parts import Part, window
from stockpot.models.preprocess import Preprocess


class Shown(Protocol):
    """A batch as a model sees it, on its device, whatever else is said of it."""

    @property
    def pixels(self) -> Tensor: ...


S = TypeVar("S", bound=Shown)


class Seen(NamedTuple):
    """A batch of a dataset on the device."""

    pixels: Tensor
    batch: Batch


class Pictures:
    """Batches by what they show; one for all models that are measured together."""

    def __init__(self) -> None:
        self._streams: dict[Hashable, _Stream[Any]] = {}
        self._loaded: dict[str, Dataset] = {}
        self.mark = object()
        """Stands for this lifetime of pictures; what else is remembered may name it."""
        self.seconds = 0.0
        """What waiting for them took, all askers together."""

    def shared(
        self,
        what: Hashable,
        make: Callable[[], Iterator[S]],
        device: torch.device,
        waits: Stage = "decode",
    ) -> Iterator[S]:
        """All batches, each made once for those who go through them in step.

        Args:
            what: everything that the pixels depend on.
            make: makes them from the first on; called again for who is out of step.
            device: where they are made.
            waits: as which stage it counts when a GPU must wait for them.
        """

        def begun() -> Iterator[S]:
            return beside(make(), device, waits)

        stream = self._streams.get(what)
        if stream is None or stream.number > 0:
            stream = self._streams[what] = _Stream(begun())
        number = 0
        while True:
            if stream.number > number:  # the others are ahead
                stream = _Stream(begun())
            start = time.perf_counter()
            item = stream.at(number)
            self.seconds += time.perf_counter() - start
            if item is None:
                return
            yield item
            number += 1

    def load(self, name: str, **options: Any) -> Dataset:
        """A further dataset of a measure, loaded once for all."""
        key = repr((name, sorted(options.items())))
        if key not in self._loaded:
            self._loaded[key] = load_dataset(name, **options)
        return self._loaded[key]

    def of(
        self,
        data: Dataset,
        size: int,
        preprocess: Preprocess,
        device: torch.device,
        part: Part | None = None,
    ) -> Iterator[Seen]:
        """The batches of a dataset, or of a part of it, at a model's size, on its device."""

        def make() -> Iterator[Seen]:
            for batch in window(data, part, size).batches(size, preprocess.fit, device):
                yield Seen(batch.images, batch)

        what = (*told_apart(data, preprocess), size, str(device), part)
        return self.shared(what, make, device)


def told_apart(data: Dataset, preprocess: Preprocess) -> tuple[Hashable, ...]:
    """What the pictures of a dataset at a model's size depend on, labels included."""
    content = (data.name, data.split, data.fingerprint, len(data), data.classes)
    # Pictures of one size are given as they are, whatever the model.
    return content if isinstance(data.images, TensorImages) else (*content, geometry(preprocess))


def geometry(preprocess: Preprocess) -> tuple[Hashable, ...]:
    """What of a preprocessing decides the pixels; they are normalised by the model itself."""
    return (preprocess.size, preprocess.resized, preprocess.interpolation)


class _Stream(Generic[S]):
    """A way through batches, of which the last is kept."""

    def __init__(self, source: Iterator[S]) -> None:
        self._source = source
        self._last: S | None = None
        self._failed: Exception | None = None
        self.number = -1
        """Which batch is kept."""

    def at(self, number: int) -> S | None:
        """The batch of this number, which must not lie behind; none after the last."""
        while self.number < number:
            self._last = None  # room for the next one
            self.number += 1
            try:
                self._last = None if self._failed else next(self._source, None)
            except Exception as problem:
                self._failed = problem
        if self._failed is not None:  # who asks after the first gets the same answer
            raise self._failed
        return self._last


def beside(source: Iterator[S], device: torch.device, waits: Stage = "decode") -> Iterator[S]:
    """The same items; on a GPU each is made on a second stream while the last one is looked at.

    One item is made ahead, and Python is never more than two items ahead of the GPU, so that
    memory is that of a few items.
    """
    if device.type != "cuda":
        yield from source
        return
    first, second = torch.cuda.current_stream(device), _second(device)
    second.wait_stream(first)

    def made() -> tuple[S, torch.cuda.Event] | None:
        with torch.cuda.stream(second):
            item = next(source, None)
            return None if item is None else (item, second.record_event())

    looked_at: torch.cuda.Event | None = None
    coming = made()
    while coming is not None:
        item, whole = coming
        with stage(waits):
            first.wait_event(whole)
        # Freed by Python, its memory must wait for the stream that still reads it.
        item.pixels.record_stream(first)
        coming = made()
        yield item
        if looked_at is not None:
            looked_at.synchronize()
        looked_at = first.record_event()


@cache
def _second(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
