"""Cells of many models: loaded as many at a time as there is room for, measured in step.

Cells that ask one question of different models (measure, data, parameters, seed and options are
the same) form a task. The models of a task are loaded as long as their weights fit into
`model_room`; those that want pictures of the same size then go through the data together, each
batch decoded and corrupted once, while their weights stay for the next task. Where the measure lets
models join, the first are asked while the others are still being loaded. Each cell is saved as soon
as it is whole, and one that fails ends alone. The numbers are those of every cell by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

import torch

from stockpot.datasets.stream import ahead
from stockpot.engine import pick_device
from stockpot.measure import measures
from stockpot.measure.measurement import Progress, no_progress
from stockpot.measure.together.arriving import Arrivals, opened
from stockpot.measure.together.ends import End, Endings
from stockpot.measure.together.in_step import alone, in_step
from stockpot.measure.together.jobs import Asked, model_of, shares
from stockpot.measure.together.open_cell import OpenCell
from stockpot.measure.together.pictures import geometry
from stockpot.models.forward.passes import kept_passes
from stockpot.models.kept import holding_models
from stockpot.stages import Clock, timed

PICTURES = 2 * 2**30
"""The most bytes of pictures that stay on a GPU for models that are behind: 14,000 of 224 px."""
_SHARE = 8
"""Of the memory of a GPU that is free, such pictures take one part in so many."""


def run_group(
    asked: Sequence[Asked],
    progress: Progress = no_progress,
    told: Callable[[End], None] | None = None,
) -> list[End]:
    """Measure cells and save them; models that are asked the same are asked together.

    Args:
        asked: the cells.
        progress: called as images are done.
        told: called with the end of every cell as it comes.
    """
    ends = []
    try:
        with timed() as clock:
            for end in _ends(asked, progress, clock):
                ends.append(end)
                if told:
                    told(end)
    finally:
        ahead.end()  # of a cell that failed before it went through its pictures
    return ends


def _ends(asked: Sequence[Asked], progress: Progress, clock: Clock) -> Iterator[End]:
    waiting: dict[object, list[Asked]] = {}
    for one in asked:
        waiting.setdefault(model_of(one.cell), []).append(one)
    while waiting:
        with holding_models(), Arrivals(waiting) as arrivals, Endings(clock) as endings:
            while arrivals.more or arrivals.tasks:
                first = next(iter(arrivals.tasks.values()), None)
                if arrivals.more and (first is None or not _joins(first[0])):
                    yield from arrivals.take(wait=True)
                    continue
                yield from _Task(arrivals, endings, progress, clock).ends()
            yield from endings.rest()
        if arrivals.count > 2:
            kept_passes.cache_clear()  # as many as there were, they are not worth their memory


def _joins(asked: Asked) -> bool:
    """Whether models may join others that are under way: what they miss must be kept for them."""
    if not shares(asked.cell) or not measures.get(asked.cell.measure).tags.joins:
        return False
    return picture_room(pick_device(asked.cell.device)) > 0


class _Task:
    """One question to several models: those that see the same pictures go together."""

    def __init__(
        self, arrivals: Arrivals, endings: Endings, progress: Progress, clock: Clock
    ) -> None:
        self._arrivals, self._endings = arrivals, endings
        self._progress, self._clock = progress, clock
        self._task = next(iter(arrivals.tasks))
        self._alike: dict[Hashable, dict[int, OpenCell]] = {}
        self._now: Hashable = None
        """What those who are under way see; others wait for their turn."""
        self._inside: list[object] = []
        """The models that are under way."""

    def ends(self) -> Iterator[End]:
        """Measure the cells of the task, and of whoever arrives meanwhile."""
        joins = _joins(self._arrivals.tasks[self._task][0])
        yield from self._opened()
        while self._alike:
            self._now = next(iter(self._alike))
            cells = self._alike.pop(self._now)
            self._inside = [found.model for found in cells.values()]
            several = len(cells) > 1 or self.more
            room = picture_room(next(iter(cells.values())).device) if joins and several else 0
            joining = self if joins else None
            self._arrivals.joined = joins
            yield from in_step(cells, self._progress, self._clock, self._endings, joining, room)
            self._arrivals.joined = False

    @property
    def more(self) -> bool:
        """Whether another model may come."""
        return self._arrivals.more

    def begin(self) -> None:
        """Load those that are still to come."""
        self._arrivals.begin()

    def take(self, *, wait: bool) -> Iterator[End | tuple[int, OpenCell]]:
        """Models that have arrived and see what those see that are under way."""
        yield from self._arrivals.take(wait=wait)
        if self._task in self._arrivals.tasks:
            yield from self._opened()
            for number, found in list(self._alike.get(self._now, {}).items()):
                if not any(found.model is other for other in self._inside):
                    del self._alike[self._now][number]
                    self._inside.append(found.model)
                    yield number, found
            if not self._alike.get(self._now, True):
                del self._alike[self._now]

    def _opened(self) -> Iterator[End]:
        """Open the cells of the task that have arrived, by what they see."""
        for one in self._arrivals.tasks.pop(self._task):
            known = self._arrivals.opened.pop(one.number, None)
            found = known or opened(one, begins=not self._arrivals.joined)
            if isinstance(found, End):
                yield found
                continue
            if not shares(one.cell):
                # It may take long, and who waits is told of the others first.
                yield from self._endings.rest()
                yield alone(one.number, found, self._progress, self._clock)
                continue
            seen: Hashable = geometry(found.model.preprocess)
            # One model under two names is asked twice: who watches it must not see both.
            while any(other.model is found.model for other in self._alike.get(seen, {}).values()):
                seen = (seen, "again")
            self._alike.setdefault(seen, {})[one.number] = found


def picture_room(device: torch.device) -> int:
    """Bytes of pictures that may stay on a device; a processor's models go in step."""
    if device.type != "cuda":
        return 0
    return min(PICTURES, int(torch.cuda.mem_get_info(device)[0]) // _SHARE)
