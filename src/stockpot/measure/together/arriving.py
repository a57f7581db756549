"""The models of a group as they arrive: each is loaded for the first of its cells that is missing.

A thread loads them in their order (`loading.py`); a model that is there is opened by whoever
measures, between two steps of those that came before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Self

import torch

from stockpot.engine import pick_device
from stockpot.errors import UserError
from stockpot.measure.together.ends import End
from stockpot.measure.together.jobs import Asked, shares, task_of
from stockpot.measure.together.loading import Loading, loads_beside
from stockpot.measure.together.open_cell import OpenCell, open_cell
from stockpot.models.kept import model_room, weight_bytes
from stockpot.results.schema import CellResult
from stockpot.stages import stage

MOST = 32
"""Models that are measured together at most: what a GPU needs beside their weights is theirs too,
and what was done of a group is lost when it is killed."""


class Arrivals:
    """Models out of those that wait, as many as there is room for, with their cells by task."""

    def __init__(self, waiting: dict[object, list[Asked]]) -> None:
        """Begin to load.

        Args:
            waiting: cells by model; those that arrive are taken out.
        """
        self._waiting = waiting
        self._held = 0
        self._closed = False
        self._loading: Loading | None = None
        self.joined = False
        """Whether those who arrive join others, who go through the pictures already."""
        self.count = 0
        """Models that have arrived."""
        self.opened: dict[int, OpenCell] = {}
        self.tasks: dict[object, list[Asked]] = {}
        """Cells of models that have arrived, by what is asked; who measures takes them out."""
        first = [cells[0] for cells in waiting.values()][:MOST]
        try:
            device = pick_device(first[0].cell.device)
            self._room = model_room(device)
            if len(first) > 1 and loads_beside(device):
                self._loading = Loading(first, device, self._room)
        except UserError:
            self._room = 0  # the cells themselves will fail with this

    def __enter__(self) -> Self:
        if self._loading is not None:
            self._loading.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        if self._loading is not None:
            self._loading.__exit__(kind, value, trace)

    @property
    def more(self) -> bool:
        """Whether another model may arrive."""
        return bool(self._waiting) and not self._closed

    def begin(self) -> None:
        """Load those beside whom nobody is made ready any more."""
        if self._loading is not None:
            self._loading.begin()

    def take(self, *, wait: bool) -> Iterator[End]:
        """Open the next model that is there; gives the ends of cells that are not to be measured.

        It is one at a time: a GPU would wait while a row of them is opened.

        Args:
            wait: whether to wait for it.
        """
        count = self.count
        while self.more:
            model, cells = next(iter(self._waiting.items()))
            number = cells[0].number
            if self._loading is not None and not self._loading.is_there(number):
                if not wait:
                    return
                with stage("load"):
                    self._loading.wait(number)
            yield from self._open(model, cells)
            if self.count > count:
                return

    def _open(self, model: object, cells: list[Asked]) -> Iterator[End]:
        found: OpenCell | None = None
        while cells and found is None:
            first = opened(cells[0], begins=not self.joined)
            if isinstance(first, OpenCell):
                found = first
            else:
                cells.pop(0)
                yield first
        if found is None:
            del self._waiting[model]
            return
        self._held += weight_bytes(found.model)
        if self.count and (self._held > self._room or self.count >= MOST):
            self._closed = True
            return
        self.count += 1
        self.opened[cells[0].number] = found
        for one in self._waiting.pop(model):
            task = task_of(one.cell) if shares(one.cell) else one.number
            self.tasks.setdefault(task, []).append(one)


def opened(asked: Asked, *, begins: bool = True) -> OpenCell | End:
    """A cell with its model; its end where that is not possible, or it is saved already.

    Args:
        asked: the cell.
        begins: as for `open_cell`.
    """
    try:
        # Others may be under way without gradients; a model that is kept must know them.
        with torch.inference_mode(mode=False):
            found = open_cell(asked.cell, asked.key, begins=begins)
    except Exception as problem:
        return End(asked.number, None, problem)
    return End(asked.number, found) if isinstance(found, CellResult) else found
