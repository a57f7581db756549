"""Carry a fusion out: stream every tensor through its fuser into memory or a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from stockpot.checkpoints.alignment import Row
from stockpot.checkpoints.folder import check_free, is_made, parse_size, staged_folder
from stockpot.checkpoints.hashes import FileHashes
from stockpot.checkpoints.layouts import is_batch_norm_statistic
from stockpot.checkpoints.open import open_checkpoint
from stockpot.checkpoints.source import Source, TensorInfo
from stockpot.errors import BadParameterError
from stockpot.fuse.as_lora import check_as_lora, write_adapters
from stockpot.fuse.finite import check_merged, written
from stockpot.fuse.fuser import Slab, SurveyFuser, SwitchFuser
from stockpot.fuse.job import Job
from stockpot.fuse.learning.bookmark import bookmark_of
from stockpot.fuse.learning.learner import DataFuser, ModuleFuser, learned_files
from stockpot.fuse.learning.run import learn
from stockpot.fuse.recompute import check_recompute, recompute_folders
from stockpot.fuse.record import (
    request_data,
    request_records,
    seen_by,
    write_companions,
    write_records,
)
from stockpot.fuse.request import Request
from stockpot.fuse.sinks import FolderSink, MemorySink, Sink
from stockpot.fuse.stream import STRETCH, Stream
from stockpot.fuse.switched.write_small import check_small, write_small
from stockpot.lock import held_alone, lock_of
from stockpot.models.modules.ensemble import write_ensemble
from stockpot.models.modules.folder import Module, write_module
from stockpot.pool.batch_norm import is_sound, is_variance, sound
from stockpot.stages import Spent, stage


def execute(
    request: Request, job: Job, out: Path | None, hashes: FileHashes | None, spent: Spent
) -> Path | dict[str, Any]:
    """Fuse; into memory as label -> weights, or into the folder `out`, once.

    Args:
        request: what is asked for.
        job: the same, made ready.
        out: the folder.
        hashes: of the files that are read, for the records.
        spent: since when the records tell the time.
    """
    if out is None:
        return _execute(request, job, None, hashes, spent)
    with held_alone(lock_of(out), out):
        if _is_made(request, out, hashes):
            return out
        return _execute(request, job, out, hashes, spent)


def _is_made(request: Request, out: Path, hashes: FileHashes | None) -> bool:
    """Whether a fusion that was killed in its last moment, or done before, has left it all."""
    if not out.is_dir() or not any(out.iterdir()):
        return False
    if hashes is None:  # what stands there may have been made of any content
        check_free(out)
        return False
    save = request.options.save
    if save and not all(path.is_file() for path in learned_files(save)):
        check_free(out)
    for label, record in request_records(request, hashes.result()).items():
        if not is_made(out / label, record):
            check_free(out)
    _remove_bookmarks(request, out)
    return True


def _remove_bookmarks(request: Request, out: Path) -> None:
    for label in request.points:
        bookmark_of(out, label).unlink(missing_ok=True)


def _execute(
    request: Request, job: Job, out: Path | None, hashes: FileHashes | None, spent: Spent
) -> Path | dict[str, Any]:
    modules: dict[str, Module] = {}
    check_as_lora(request, job)
    if out is None and request.options.as_lora is not None:
        raise BadParameterError("as_lora: an adapter is a folder: give out=FOLDER (-o).")
    anew = request.options.bn == "recompute"
    if anew:
        check_recompute(request, job)
    if out is None and anew:
        # The fused model has to be run, and models are run from folders.
        with TemporaryDirectory() as place:
            _execute(request, job, Path(place) / "model", hashes, spent)
            return _read_back(request, job, Path(place) / "model")
    if request.tasks is not None and (job.learns or anew):
        request = replace(request, tasks=request_data(request))  # read once
    if job.together and out is None:
        raise BadParameterError(
            f"{request.method}: makes models that answer together, not a state dict.",
            hint="Give out=FOLDER (-o) and load it with stockpot.load_model.",
        )
    learns = job.learns  # what comes back from learning needs none any more
    if learns:
        if job.module and out is None:
            raise BadParameterError(
                f"{request.method}: makes a module with a forward of its own, not a state dict.",
                hint="Give out=FOLDER (-o) and load it with stockpot.load_model.",
            )
        if job.module and job.stream.alignment.template.folder is None:
            raise BadParameterError(
                f"{request.method}: a module is loaded by its architecture's config.json, and the "
                "models given have none.",
                hint="Give the base and the members as model folders.",
            )
        if out is not None:
            check_free(out)
        with stage("learn"):
            job, modules = learn(request, job, out, hashes)
    elif request.tasks is not None and not anew:
        raise BadParameterError(f"{request.method}: uses no data, but tasks were given.")
    models = [model for label in job.of for model in job.models(label)]
    if out is None:
        memory = MemorySink({model: job.infos_of(model) for model in models})
        with stage("merge"):
            _stream(job, memory, request.method)
        return _in_memory(request, job, memory.weights)
    small = any(job.small(number) for number in range(len(job.fusers)))
    if small:
        check_small(request, job)
    max_shard = parse_size(request.options.max_shard)
    infos = {model: job.infos_of(model) for model in models}
    needs = 0 if small else sum(i.nbytes for own in infos.values() for i in own.values())
    with staged_folder(out, needs=needs) as folder:
        for model in models:
            (folder / model).mkdir(parents=True, exist_ok=True)
        folders = {model: folder / model for model in models}
        with hashes.following() if hashes else nullcontext(), stage("merge"):
            if small:
                told = write_small(request, job, folder)
            else:
                with closing(FolderSink(folders, infos, max_shard)) as sink:
                    _stream(job, sink, request.method)
                told = {}
        with stage("write"):
            write_companions(job, request.options, folder)
            details = recompute_folders(request, job, folders) if anew else told
            for model, found in write_adapters(request, folders).items():
                details[model] = {**details.get(model, {}), **found}
            for label, settings in job.together.items():
                write_ensemble(folder / label, job.members, settings)
            for label, module in modules.items():
                for name, values in module.tensors.items():
                    check_merged(values, name, request.method)
                write_module(folder / label, module)
        with stage("hash"):
            records = request_records(request, hashes.result() if hashes else None)
        taken = spent.told()
        details = {model: {**details.get(model, {}), **taken} for model in models}
        write_records(job, request.options, folder, records, details, seen_by(request))
    if learns:
        _remove_bookmarks(request, out)
    return out


def _stream(job: Job, sink: Sink, method: str) -> None:
    stream = job.stream
    alignment = stream.alignment
    rows = [row for row in alignment.rows if not is_batch_norm_statistic(row.name)]
    fusers = [fuser for fuser in job.fusers if not isinstance(fuser, DataFuser | ModuleFuser)]
    with stage("look"):
        ready = stream.prepare(fusers, rows or alignment.rows)
    same = any(getattr(f, "keeps_equal", False) for f in ready) and _all_equal(stream)
    aliases: dict[str, list[str]] = {}
    for alias, name in alignment.tied.items():
        aliases.setdefault(name, []).append(alias)

    def put(model: str, name: str, values: Tensor, start: int) -> None:
        for target in (name, *aliases.get(name, ())):
            if target in job.infos:
                sink.write(model, target, written(values, job.infos[target].dtype, target), start)

    def finish(label: str, slab: Slab, values: Tensor) -> None:
        if is_variance(slab.name) and not bool(is_sound(values).all()):
            values = sound(values, slab.smallest())
        check_merged(values, slab.name, method)
        for model in job.models(label):
            put(model, slab.name, values, slab.start)

    def work(slab: Slab) -> None:
        for label, of in job.of.items():
            fuser = ready[of[slab.name]]
            if isinstance(fuser, SwitchFuser):
                for model, values in zip(job.models(label), fuser.merge(slab), strict=True):
                    check_merged(values, slab.name, method)
                    put(model, slab.name, values, slab.start)
            elif same and fuser.keeps_equal:
                for part in (slab,) if slab.stop is not None else slab.stretches():
                    finish(label, part, part.member(0))
            elif isinstance(fuser, SurveyFuser):
                merge = fuser.survey(slab)
                for part in slab.stretches(rows=fuser.rows):
                    finish(label, part, merge(part))
            else:
                finish(label, slab, fuser.merge(slab))

    def elementwise(row: Row) -> bool:
        return all(ready[of[row.name]].elementwise for of in job.of.values())

    stream.walk(stream.pieces(alignment.rows, elementwise), work)
    for copied in alignment.copies:
        for start, values in _in_stretches(*copied[1:]):
            for label in job.of:
                for model in job.models(label):
                    put(model, copied.name, values, start)
    for model, head in (item for label in job.of for item in job.heads(label).items()):
        for copied in head:
            for start, values in _in_stretches(*copied[1:]):
                dtype = job.dtype or values.dtype
                sink.write(model, copied.name, written(values, dtype, copied.name), start)


def _in_stretches(info: TensorInfo, source: Source, name: str) -> Iterator[tuple[int, Tensor]]:
    """A tensor in parts, each with the place where it begins."""
    for start in range(0, info.numel, STRETCH):
        yield start, source.stretch(name, start, min(start + STRETCH, info.numel))


def _all_equal(stream: Stream) -> bool:
    """Whether all members, and the base if it is used, are the same; ends at a difference."""
    alignment = stream.alignment
    for row in alignment.rows:
        others = list(zip(alignment.members[1:], row.members[1:], strict=True))
        if alignment.base is not None and row.base is not None:
            others.append((alignment.base, row.base))
        for start, first in _in_stretches(row.info, alignment.members[0], row.members[0]):
            for source, name in others:
                values = source.stretch(name, start, start + len(first))
                if values.dtype != first.dtype or not torch.equal(values, first):
                    return False
    return True


def _read_back(request: Request, job: Job, folder: Path) -> dict[str, Any]:
    """The models of a folder as weights in memory."""
    weights = {}
    for model in (model for label in job.of for model in job.models(label)):
        source = open_checkpoint(folder / model)
        weights[model] = {name: source.read(name).clone() for name in source.tensors()}
    return _in_memory(request, job, weights)


def _in_memory(
    request: Request, job: Job, weights: Mapping[str, dict[str, Tensor]]
) -> dict[str, Any]:
    for state in weights.values():
        for alias, name in job.stream.alignment.tied.items():
            if alias in state and name in state:
                state[alias] = state[name]
    results: dict[str, Any] = {}
    for label in request.points:
        states = [weights[model] for model in job.models(label)]
        if job.switches:
            results[label] = dict(zip(request.members, states, strict=True))
        else:
            results[label] = states[0]
    return results
