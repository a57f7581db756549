"""Which cells go together, and in how many jobs: by model, by question, by part of the images."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from stockpot.datasets.dataset import Dataset
from stockpot.measure import measures
from stockpot.measure.cells import Cell
from stockpot.measure.parts import Part
from stockpot.measure.together.steps import steps_of
from stockpot.models.classifier import Classifier
from stockpot.results.schema import CellKey


class Asked(NamedTuple):
    """A cell to be measured, by a number, with its key where that is known."""

    number: int
    cell: Cell
    key: CellKey | None = None


def shares(cell: Cell) -> bool:
    """Whether a cell can be measured beside others; what a model has seen is its own."""
    return not cell.unseen and steps_of(measures.get(cell.measure).function) is not None


def task_of(cell: Cell) -> tuple[object, ...]:
    """What a cell asks, whatever the model."""
    data = cell.data
    source = id(data.source) if isinstance(data.source, Dataset) else data.source
    options = json.dumps([data.options, cell.params], sort_keys=True, default=repr)
    return (
        *(cell.measure, data.name, source, options),
        *(cell.seed, cell.store, cell.device, cell.batch_size),
        *(cell.precision, cell.compile, cell.samples, cell.part),
    )


def model_of(cell: Cell) -> tuple[object, ...]:
    """Which model a cell asks."""
    source = cell.model.source
    named = id(source) if isinstance(source, Classifier) else source
    return (cell.model.name, named, json.dumps(cell.model.options, sort_keys=True, default=repr))


def split(asked: Sequence[Asked], workers: int) -> list[list[Asked]]:
    """Jobs for so many workers: cells that go together stay together while all have work.

    One worker has one job. For several, the models are dealt out in equal parts, and where there
    are fewer models than workers, their tasks too; a cell that shares nothing is a job.
    """
    alone = [[one] for one in asked if not shares(one.cell)]
    shared = [one for one in asked if shares(one.cell)]
    if workers == 1:
        return [list(asked)] if asked else []
    models = list(dict.fromkeys(model_of(one.cell) for one in shared))
    tasks = list(dict.fromkeys(task_of(one.cell) for one in shared))
    rows = min(len(models), workers)
    columns = min(len(tasks), workers // max(rows, 1))
    jobs: dict[tuple[int, int], list[Asked]] = {}
    for one in shared:
        row = models.index(model_of(one.cell)) * rows // len(models)
        column = tasks.index(task_of(one.cell)) * columns // len(tasks)
        jobs.setdefault((row, column), []).append(one)
    return [*alone, *jobs.values()]


def divide(asked: Sequence[Asked], workers: int) -> list[list[Asked]]:
    """Jobs for the parts of cells that are to be divided; models share the pictures of a part."""
    jobs: list[list[Asked]] = []
    for count in sorted({one.cell.shards for one in asked}):
        own = [one for one in asked if one.cell.shards == count]
        for number in range(count):
            part = Part(number, count)
            parts = [one._replace(cell=replace(one.cell, part=part)) for one in own]
            jobs += split(parts, max(1, workers // count))
    return jobs
