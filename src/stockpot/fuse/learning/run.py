"""Let a job learn: run the models on the data, or read what was learned before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from stockpot.checkpoints.hashes import FileHashes
from stockpot.errors import BadParameterError
from stockpot.fuse.fuser import Fuser
from stockpot.fuse.fusionbench.merging_weights import is_merging_weights, merging_weights
from stockpot.fuse.job import Job
from stockpot.fuse.learning.assemble import assemble, find_data
from stockpot.fuse.learning.bookmark import Bookmark, bookmark_of
from stockpot.fuse.learning.learner import (
    DataFuser,
    Learned,
    Learner,
    ModuleFuser,
    Record,
    load_learned,
    save_learned,
)
from stockpot.fuse.learning.task_pool import TaskPool
from stockpot.fuse.record import request_records
from stockpot.fuse.request import Request
from stockpot.models.modules.folder import Module


def learn(
    request: Request, job: Job, out: Path | None = None, hashes: FileHashes | None = None
) -> tuple[Job, dict[str, Module]]:
    """The job with every learner turned into the fuser it becomes, and the modules it makes.

    With a folder to write, what is learned is kept beside it from time to time, and gone on with.
    """
    options = request.options
    if options.save and len(request.points) > 1:
        raise BadParameterError("save: a sweep learns several times; expected one point.")
    pool: TaskPool | None = None
    fusers: list[Fuser | Learner] = list(job.fusers)
    modules: dict[str, Module] = {}
    for label, params in request.points.items():
        for number in sorted(set(job.of[label].values())):
            learner = fusers[number]
            if not isinstance(learner, DataFuser | ModuleFuser):
                continue
            record = _record(request, job, params)
            elsewhere = options.load is not None and is_merging_weights(options.load)
            if elsewhere and pool is None:
                pool = _pool(request, job)
            if elsewhere and pool is not None:
                learned: Learned | None = _learned_elsewhere(request, pool)
            else:
                learned = load_learned(options.load, record) if options.load else None
            if pool is None and (learned is None or isinstance(learner, ModuleFuser)):
                pool = _pool(request, job)
            if learned is None and pool is not None:
                if out is not None:
                    path = bookmark_of(out, label)
                    pool.bookmark = Bookmark(path, partial(_question, request, label, hashes))
                learned = learner.learn(pool)
                learned = replace(learned, facts={**learned.facts, "tasks": _tasks(pool)})
                if options.save:
                    save_learned(options.save, learned, record)
            if learned is None:
                continue
            fusers[number] = learner.fuser(learned)
            if isinstance(learner, ModuleFuser) and pool is not None:
                modules[label] = _module(learner, pool, learned, request, job)
    return replace(job, fusers=fusers), modules


def _learned_elsewhere(request: Request, pool: TaskPool) -> Learned:
    """Merging weights of FusionBench, for the method that has such."""
    path = str(request.options.load)
    if request.method != "adamerging":
        raise BadParameterError(
            f"load: {path} holds merging weights, which are for adamerging, not for "
            f"{request.method}."
        )
    facts = {"names": list(pool.names), "loaded_from": path}
    return Learned({"coefficients": merging_weights(path, pool).cpu()}, facts)


def _pool(request: Request, job: Job) -> TaskPool:
    data = find_data(request.tasks, tuple(request.members))
    pool = assemble(job.stream, request.members, request.base, data)
    if request.progress is not None:
        pool.progress = request.progress
    return pool


def _record(request: Request, job: Job, params: Mapping[str, Any]) -> Record:
    names = tuple(row.name for row in job.stream.alignment.rows)
    return Record(request.method, tuple(request.members), names, params)


def _question(request: Request, label: str, hashes: FileHashes | None) -> str:
    """What decides the outcome: the method and its settings, the weights and the data."""
    known = (hashes or FileHashes(request.files)).result()
    return request_records(request, known)[label].digest


def _module(
    learner: ModuleFuser, pool: TaskPool, learned: Learned, request: Request, job: Job
) -> Module:
    tensors, settings = learner.parts(pool, learned)
    facts = {"method": request.method, **learned.facts}
    tasks = _tasks(pool) or facts.get("tasks", [])
    heads = {
        f"heads.{index}.{place}": value
        for index, task in enumerate(pool.tasks)
        for place, value in task.own.items()
        if not place.endswith("network.head")  # a text head is made from class names when loaded
    }
    return Module(
        kind=learner.kind,
        members=tuple(job.members),
        settings=settings,
        tasks=tasks,
        tensors={name: value.detach().cpu() for name, value in {**tensors, **heads}.items()},
        facts={key: value for key, value in facts.items() if key not in ("tasks", "names")},
    )


def _tasks(pool: TaskPool) -> list[dict[str, Any]]:
    """Name and classes of each task, by which a module knows them again."""
    return [{"name": task.name, "classes": list(task.classes)} for task in pool.tasks]
