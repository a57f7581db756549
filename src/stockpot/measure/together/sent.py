"""Cells and parts of them as jobs that another process or machine understands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.engine import Engine
from stockpot.engine.surroundings import sendable
from stockpot.measure.cells import Cell
from stockpot.measure.measurement import Progress, no_progress
from stockpot.measure.together.ends import End
from stockpot.measure.together.group import run_group
from stockpot.measure.together.jobs import Asked
from stockpot.results.schema import CellKey


def carry_out(
    job: Sequence[Asked],
    progress: Progress = no_progress,
    told: Callable[[End], None] | None = None,
) -> list[End]:
    """A job, in whatever process this is: cells, or parts of them."""
    if job[0].cell.part is not None:
        # What fails here fails again when the cells themselves are measured, and is told then.
        run_group(job, progress)
        return []
    if told:
        return run_group(job, progress, told)
    return [end._replace(error=end.error and sendable(end.error)) for end in run_group(job)]


def sent(cell: Cell, key: CellKey | None, runner: Engine) -> Cell:
    """A cell as it is sent to a worker, whose machine may be another.

    What `auto` means is settled here, so that no number depends on where a cell runs. To machines
    that have a place for them, pictures that are decoded already come along.
    """
    if key is not None and cell.passes:
        cell = replace(cell, precision=key.precision)
    if key is not None and getattr(runner, "places", False):
        data = cell.data.load()
        if isinstance(data.images, TensorImages) and not isinstance(cell.data.source, Dataset):
            cell = replace(cell, data=replace(cell.data, loaded=data))
    return cell
