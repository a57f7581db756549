"""Models that a thread loads in their order, while those that are there are asked already."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

import torch

from stockpot.engine import pick_device
from stockpot.errors import UserError
from stockpot.measure.cells import Cell, undefended
from stockpot.measure.together.jobs import Asked
from stockpot.models.load import identify, load_ahead


class Loading:
    """Begin to load models, as many as there is room for; whoever needs one asks whether it is
    there.

    What is not loaded so (another library does it, or there is no room) counts as being there: it
    is for the one who opens it to load. The first is loaded at once, the others when somebody says
    so or waits for one, one after the other: Python runs in one thread, and to make the first one's
    passes takes it as long as to load several others. Each is there before the one before it has
    seen its pictures.
    """

    def __init__(self, asked: Sequence[Asked], device: torch.device, room: int) -> None:
        """Begin.

        Args:
            asked: the first cell of each model.
            device: where they go.
            room: bytes that their weights may take.
        """
        self._device = device
        self._moved = threading.Condition()
        self._left = deque(_fitting(asked, room))
        self._coming = {one.number for one in self._left}
        self._first = self._left[0].number if self._left else None
        self._began = False
        if device.type == "cuda":
            # Memory of models that are gone may still be read by passes that are under way.
            _stream(device).wait_stream(torch.cuda.current_stream(device))
        # No daemon: a process that ended while torch is at work would be aborted.
        self._thread = threading.Thread(target=self._work, name="load")
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        with self._moved:
            self._left.clear()
            self._began = True
            self._moved.notify_all()
        self._thread.join()

    def is_there(self, number: int) -> bool:
        """Whether nobody is loading the model of this cell, or will."""
        return number not in self._coming

    def begin(self) -> None:
        """Load the others too."""
        if self._began:
            return
        with self._moved:
            self._began = True
            self._moved.notify_all()

    def wait(self, number: int) -> None:
        """Until it is there."""
        if number != self._first:
            self.begin()
        with self._moved:
            while number in self._coming:
                self._moved.wait()

    def _work(self) -> None:
        while True:
            with self._moved:
                while not self._began and self._first not in self._coming:
                    self._moved.wait()
                one = self._left.popleft() if self._left else None
            if one is None:
                return
            with suppress(Exception):  # of whatever kind: who opens it tries again, and hears
                self._load(one)
            with self._moved:
                self._coming.discard(one.number)
                self._moved.notify_all()

    def _load(self, one: Asked) -> None:
        if one.key is not None:
            _load(one.cell, self._device, one.key.model_fingerprint)


def load_first(cell: Cell) -> threading.Thread | None:
    """Begin to load the model of the first cell of a run, while its data is looked at.

    Nothing is begun where results are saved already, which may be those that are asked for, nor
    where the processor has no time for it.
    """
    source = cell.model.source
    saved = cell.store is not None and os.path.isdir(cell.store) and bool(os.listdir(cell.store))
    if saved or not isinstance(source, str) or not os.path.isdir(source):
        return None
    try:
        device = pick_device(cell.device)
    except UserError:
        return None  # the cell itself will fail with this
    if not loads_beside(device):
        return None

    def load() -> None:
        with suppress(Exception):  # of whatever kind: who opens the cell will hear
            _load(cell, device, identify(source, undefended(cell.model.options)))

    thread = threading.Thread(target=load, name="load first")
    thread.start()
    return thread


def loads_beside(device: torch.device) -> bool:
    """Whether models are loaded while others are asked: the processor must have time for it."""
    return device.type != "cpu"


def _load(cell: Cell, device: torch.device, fingerprint: str) -> None:
    if not isinstance(cell.model.source, str):
        return
    # On the stream of the passes every weight would wait for all that is queued there.
    own = torch.cuda.stream(_stream(device)) if device.type == "cuda" else nullcontext()
    with own:
        load_ahead(cell.model.source, undefended(cell.model.options), device, fingerprint)


def _fitting(asked: Sequence[Asked], room: int) -> list[Asked]:
    """Those that lie in folders, as far as their files fit."""
    found = []
    for one in asked:
        source = one.cell.model.source
        if one.key is None or not isinstance(source, str) or not os.path.isdir(source):
            continue
        room -= sum(file.stat().st_size for file in Path(source).glob("*.safetensors"))
        if room < 0:
            break
        found.append(one)
    return found


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
