"""Pictures that several models go through in step: each batch is made once and shown to all.

`shared` gives everybody who names the same pictures the same batches. The last batch is kept, so
those who go in step share it and memory does not grow with their number; who falls behind makes
pictures of its own, with the same bytes.

Where there is room, batches of the data itself (`of`) are kept from the last model's place to the
first one's: a model that is loaded later finds all that it has missed, and each can go on whenever
its next batch is there (`fetched.py`), whatever the others wait for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from stockpot.datasets.dataset import Batch, Dataset, TensorImages
from stockpot.datasets.load import load_dataset
from stockpot.measure.parts import Part, window
from stockpot.measure.together.beside import Shown, beside
from stockpot.measure.together.fetched import Fetched
from stockpot.models.preprocess import Preprocess
from stockpot.stages import Stage

S = TypeVar("S", bound=Shown)
T = TypeVar("T")


class Seen(NamedTuple):
    """A batch of a dataset on the device."""

    pixels: Tensor
    batch: Batch


class Pictures:
    """Batches by what they show; one for all models that are measured together."""

    def __init__(self, room: int = 0) -> None:
        """Nothing is made yet.

        Args:
            room: bytes of batches of the data itself that are kept; 0 keeps the last one alone.
        """
        self.room = room
        self.floor = 0
        """Where there is room: the number of the first batch that somebody may still ask for."""
        self._streams: dict[Hashable, _Stream[Any]] = {}
        self._begun: list[_Stream[Any]] = []
        self._loaded: dict[str, Dataset] = {}
        self._once: dict[Hashable, tuple[object, Any]] = {}
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

        return self._all(what, lambda: _Stream(beside(make(), device, waits)))

    def _all(self, what: Hashable, begin: Callable[[], _Stream[S]]) -> Iterator[S]:
        def begun() -> _Stream[S]:
            self._begun.append(begin())
            return self._begun[-1]

        stream: _Stream[S] | None = self._streams.get(what)
        if stream is None or not stream.has(0):
            # At once, not when the first is asked for: whoever asks may have something to do first.
            stream = self._streams[what] = begun()
        return self._from(stream, begun)

    def _from(self, stream: _Stream[S], begun: Callable[[], _Stream[S]]) -> Iterator[S]:
        number = 0
        while True:
            if not stream.has(number):  # the others are ahead
                stream = begun()
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

    def once(self, what: Hashable, data: Dataset, make: Callable[[], T]) -> T:
        """Something that all models need of a dataset, made once for all.

        Args:
            what: all that it depends on beside the data.
            data: whose it is.
            make: makes it.
        """
        key = (what, id(data))
        if key not in self._once:
            self._once[key] = (data, make())  # with the data: no id is used twice
        found: T = self._once[key][1]
        return found

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
        if self.room:
            return self._all(what, lambda: _Kept(Fetched(make, device), self))
        return self.shared(what, make, device)

    def ready(self, number: int) -> bool:
        """Whether nobody would have to wait for a batch of this number."""
        return all(stream.ready(number) for stream in self._streams.values())

    @property
    def shown(self) -> bool:
        """Whether anybody was given a batch."""
        return any(stream.number >= 0 for stream in self._streams.values())

    @property
    def full(self) -> bool:
        """Whether there is no room for another batch."""
        return any(stream.full for stream in self._streams.values())

    def close(self) -> None:
        """Make no more."""
        for stream in self._begun:
            stream.close()
        self._begun.clear()
        self._streams.clear()
        self._once.clear()


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
        """Which batch was made last."""

    def has(self, number: int) -> bool:
        """Whether the batch of this number is kept, or yet to come."""
        return number >= self.number

    def ready(self, number: int) -> bool:
        """Whether it can be had without waiting, as far as one can tell."""
        return True

    @property
    def full(self) -> bool:
        """Whether there is no room for another."""
        return False

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

    def close(self) -> None:
        """Nobody asks any more."""


class _Kept(_Stream[S]):
    """A way through batches, kept from the floor that `Pictures` has to the last one made."""

    def __init__(self, source: Fetched[S], pictures: Pictures) -> None:
        super().__init__(iter(()))
        self._fetched, self._pictures = source, pictures
        self._kept: dict[int, S] = {}
        self._ended = False

    def has(self, number: int) -> bool:
        return number in self._kept or number > self.number

    def ready(self, number: int) -> bool:
        if number in self._kept or self._ended or number <= self.number:
            return True
        return not self.full and self._fetched.ready()

    @property
    def full(self) -> bool:
        self._forget()
        held = [item.pixels.nbytes for item in self._kept.values()]
        # The next is as large as the others; but one is always made.
        return bool(held) and sum(held) + max(held) > self._pictures.room

    def at(self, number: int) -> S | None:
        while self.number < number and not self._ended:
            self._forget()
            try:
                item = self._fetched.take()
            except Exception as problem:
                self._failed, item = problem, None
            if item is None:
                self._ended = True
                break
            self.number += 1
            self._kept[self.number] = item
        if number in self._kept:
            return self._kept[number]
        if self._failed is not None:
            raise self._failed
        return None

    def close(self) -> None:
        self._kept.clear()
        self._fetched.close()

    def _forget(self) -> None:
        for number in [known for known in self._kept if known < self._pictures.floor]:
            del self._kept[number]
