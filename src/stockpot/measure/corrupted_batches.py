"""Corrupted pictures, made once for all models that a process measures on the same data.

A run measures many models on one set of corruptions, and some corruptions take longer than the
models. The pictures of the last set stay as uint8, where the model is, as far as there is room.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from torch import Tensor

ROOM = 2**28
"""Bytes that are kept at most: all 75 cells of CIFAR-10-C for a thousand images."""


class CorruptedBatches:
    """Batches by place in their set; what does not fit is made anew each time."""

    def __init__(self, room: int = ROOM) -> None:
        self.room = room
        self._set: Hashable = None
        self._kept: dict[Hashable, Tensor] = {}
        self._bytes = 0

    def get(self, whole: Hashable, place: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """The pictures at a place of a set, made if they are not here.

        Args:
            whole: everything that the pictures of the set depend on; another set replaces this one.
            place: which of them: rows, corruption and severity.
            make: how they are made.
        """
        if whole != self._set:
            self._set, self._kept, self._bytes = whole, {}, 0
        if place in self._kept:
            return self._kept[place]
        made = make()
        size = made.element_size() * made.nelement()
        # The first ones are kept: every model asks in the same order, so the last ones would
        # always have gone by the time they are wanted.
        if self._bytes + size <= self.room:
            self._kept[place] = made
            self._bytes += size
        return made
