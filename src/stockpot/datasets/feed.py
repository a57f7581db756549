"""Pictures on a device, met again and again: held there while they are few, streamed otherwise.

A set of at most `RESIDENT` bytes at the model's size (13,000 pictures of 224 px, 700,000 of 32 px)
is decoded once and stays; a first pass over all of it works on the batches as they come. A larger
one is decoded whenever it is gone through, by threads that are two batches ahead, so that memory on
the device does not grow with the set. Both ways give the same bytes in the same batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from stockpot.datasets.dataset import Images, TensorImages
from stockpot.datasets.stream.geometry import Fit
from stockpot.datasets.stream.transfer import moved
from stockpot.stages import waited

RESIDENT = 2 * 2**30
"""The most bytes of one set that are held; also the most that are decoded ahead for a block."""
_CHUNK = 512


@dataclass(frozen=True)
class Feed:
    """The pictures of a dataset, at the size that a model wants, where the model is."""

    images: Images
    fit: Fit | None
    device: torch.device

    def __len__(self) -> int:
        return len(self.images)

    @cached_property
    def bytes_each(self) -> int:
        """What one decoded picture takes."""
        return self._first.numel()

    @cached_property
    def _first(self) -> Tensor:
        return next(iter(self.images.take([0]).batches(1, self.fit)))[0]

    @cached_property
    def held(self) -> Tensor | None:
        """All pictures on the device, uint8 NCHW; none where there are too many."""
        if isinstance(self.images, TensorImages):
            pixels = self.images.pixels
            there = pixels.device == self.device
            return pixels.to(self.device) if there or pixels.nbytes <= RESIDENT else None
        if not len(self):
            return torch.empty(0, 3, 1, 1, dtype=torch.uint8, device=self.device)
        if len(self) * self.bytes_each > RESIDENT:
            return None
        for _ in self._first_pass(_CHUNK, None):
            pass
        found: Tensor = self.__dict__["held"]
        return found

    def _first_pass(self, size: int, order: Tensor | None) -> Iterator[Tensor]:
        """Batches as they are decoded, while the one before is worked on; all stay when it ends."""
        # Filled in place: joining the batches afterwards would take the memory twice.
        pixels = torch.empty(len(self), *self._first.shape, dtype=torch.uint8, device=self.device)
        places = torch.arange(len(self)) if order is None else order.cpu()
        chosen = self.images if order is None else self.images.take(places.tolist())
        rows_of = torch.split(places.to(self.device), size)
        for rows, batch in zip(rows_of, chosen.batches(size, self.fit), strict=True):
            there = moved(batch, self.device)
            pixels[rows] = there
            yield there
        self.__dict__["held"] = pixels

    def _is_to_fill(self, order: Tensor | None) -> bool:
        """Whether a pass in this order decodes all that is to stay, for the first time."""
        if "held" in self.__dict__ or isinstance(self.images, TensorImages):
            return False
        # Every row once: whoever mixes a set does so; others are given what is held.
        whole = order is None or (len(order) == len(self) and len(set(order.tolist())) == len(self))
        return whole and len(self) * self.bytes_each <= RESIDENT

    def batches(self, size: int, order: Tensor | None = None) -> Iterator[Tensor]:
        """Batches on the device: all pictures in their order, or those rows in that order."""
        return waited("decode", self._batches(size, order))

    def _batches(self, size: int, order: Tensor | None) -> Iterator[Tensor]:
        count = len(self) if order is None else len(order)
        if not count:
            return
        if self._is_to_fill(order):
            yield from self._first_pass(size, order)
        elif self.held is not None:
            whole = self.held
            if order is None:
                yield from torch.split(whole, size)
            else:
                for rows in torch.split(order.to(self.device, non_blocking=True), size):
                    yield whole[rows]
        elif isinstance(self.images, TensorImages):
            rows_of = torch.arange(count) if order is None else order.cpu()
            for rows in torch.split(rows_of, size):
                yield moved(self.images.pixels[rows], self.device)
        else:
            chosen = self.images if order is None else self.images.take(order.tolist())
            for batch in chosen.batches(size, self.fit):
                yield moved(batch, self.device)

    def blocks(self, size: int) -> Iterator[list[Tensor]]:
        """The same batches in lists of at most `RESIDENT` bytes, for who meets each several times.

        A set that is held is one block. A list is emptied when the next one is asked for, so that
        no two are alive.
        """
        together: list[Tensor] = []
        most = len(self) if self.held is not None else RESIDENT // max(self.bytes_each, 1)
        for batch in self.batches(size):
            if together and sum(map(len, together)) + len(batch) > most:
                yield together
                together.clear()
            together.append(batch)
            del batch
        if together:
            yield together

    def take(self, rows: Sequence[int] | Tensor) -> Feed:
        """The pictures of these rows, in this order."""
        index = torch.as_tensor(rows, dtype=torch.long)
        if self.held is not None:
            return Feed(TensorImages(self.held[index.to(self.device)]), self.fit, self.device)
        return Feed(self.images.take(index.tolist()), self.fit, self.device)


@dataclass(frozen=True)
class Batches:
    """A feed's batches as something that can be gone through again and again."""

    feed: Feed
    size: int

    def __len__(self) -> int:
        return -(-len(self.feed) // self.size)

    def __iter__(self) -> Iterator[Tensor]:
        return self.feed.batches(self.size)
