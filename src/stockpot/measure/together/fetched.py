"""Batches that a thread fetches ahead of who takes them: one can ask whether the next is there.

Who measures several models need not wait for a picture that is still being decoded: another model
may look at one that is there already.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import torch

from stockpot.measure.together.beside import Shown, second_stream
from stockpot.stages import Stage, stage

if TYPE_CHECKING:
    from collections.abc import Generator

S = TypeVar("S", bound=Shown)

_AHEAD = 2
"""Batches that wait to be taken at most."""


class _Made(NamedTuple, Generic[S]):
    item: S
    whole: torch.cuda.Event | None


class Fetched(Generic[S]):
    """The items of a source in their order; on a GPU they are made on the second stream."""

    def __init__(
        self, make: Callable[[], Iterator[S]], device: torch.device, waits: Stage = "decode"
    ) -> None:
        """Begin to fetch.

        Args:
            make: gives the items; it is called and gone through by the thread.
            device: where they are made.
            waits: as which stage it counts to wait for one.
        """
        self._make, self._device, self._waits = make, device, waits
        self._there: deque[_Made[S]] = deque()
        self._moved = threading.Condition()
        self._ended = self._closed = False
        self._failed: Exception | None = None
        self._first: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._first = torch.cuda.current_stream(device)
            second_stream(device).wait_stream(self._first)
        self._thread = threading.Thread(target=self._fetch, name="fetch", daemon=True)
        self._thread.start()

    def ready(self) -> bool:
        """Whether `take` has something to say at once."""
        return bool(self._there) or self._ended

    def take(self) -> S | None:
        """The next item; none after the last.

        Raises:
            Exception: whatever the source has raised.
        """
        with stage(self._waits), self._moved:
            while not self._there and not self._ended:
                self._moved.wait()
            found = self._there.popleft() if self._there else None
            self._moved.notify_all()
        if found is None:
            if self._failed is not None:
                raise self._failed
            return None
        if self._first is not None and found.whole is not None:
            with stage(self._waits):
                self._first.wait_event(found.whole)
            # Freed by Python, its memory must wait for the stream that still reads it.
            found.item.pixels.record_stream(self._first)
        return found.item

    def close(self) -> None:
        """Fetch no more, and wait for what is under way."""
        with self._moved:
            self._closed = True
            self._there.clear()
            self._moved.notify_all()
        self._thread.join()

    def _fetch(self) -> None:
        source: Generator[S] | Iterator[S] = iter(())
        try:
            with ExitStack() as around:
                around.enter_context(torch.inference_mode())  # a thread has a mode of its own
                if self._first is not None:
                    around.enter_context(torch.cuda.stream(second_stream(self._device)))
                source = self._make()
                for item in source:
                    if not self._put(item):
                        return
        except Exception as problem:  # of whatever kind: who takes hears it
            self._failed = problem
        finally:
            close = getattr(source, "close", None)
            if close is not None:
                close()
            with self._moved:
                self._ended = True
                self._moved.notify_all()

    def _put(self, item: S) -> bool:
        """Lay an item out, once there is a place; says whether more are wanted."""
        whole = None
        if self._first is not None:
            whole = second_stream(self._device).record_event()
        with self._moved:
            while len(self._there) >= _AHEAD and not self._closed:
                self._moved.wait()
            if not self._closed:
                self._there.append(_Made(item, whole))
                self._moved.notify_all()
            return not self._closed
