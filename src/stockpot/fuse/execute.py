"""Carry a fusion out: open, check, stream, write."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stockpot.checkpoints.alignment import Alignment, Row, align
from stockpot.checkpoints.card import Origin, Parent, write_card
from stockpot.checkpoints.folder import copy_companions, parse_size, staged_folder
from stockpot.checkpoints.hashes import FileHashes
from stockpot.checkpoints.layouts import is_batch_norm_statistic
from stockpot.checkpoints.locate import Location
from stockpot.checkpoints.open import open_checkpoint
from stockpot.checkpoints.source import Source, TensorInfo
from stockpot.errors import BadParameterError
from stockpot.fuse import fusers
from stockpot.fuse.batch_norm import sound_variance
from stockpot.fuse.kinds import Fuser, StagedFuser, SwitchFuser, TensorFuser
from stockpot.fuse.linear.average import mean
from stockpot.fuse.options import DTYPES, Options
from stockpot.fuse.parameters import assign
from stockpot.fuse.plan import Plan, make_plan
from stockpot.fuse.run import Request
from stockpot.fuse.sinks import FolderSink, MemorySink, Sink
from stockpot.fuse.stream import Piece, Ready, Stream
from stockpot.registry import Entry

_STATISTICS = TensorFuser(mean, elementwise=True, keeps_equal=True)
"""BatchNorm statistics are averaged where the method itself is not linear."""


@dataclass(frozen=True)
class _Job:
    """A fusion that is ready to run: every fuser, and which of them each tensor gets."""

    entry: Entry[Callable[..., Any]]
    stream: Stream
    fusers: list[Fuser]
    of: Mapping[str, Mapping[str, int]]
    """Label of the point -> tensor name -> number of its fuser."""
    switches: bool


def execute(request: Request, out: Path | None, hashes: FileHashes | None) -> Path | dict[str, Any]:
    """Fuse; into memory as label -> weights, or into the folder `out`."""
    job = _prepare(request)
    infos = _output_infos(job.stream.alignment, request.options)
    models = _model_names(request, job)
    if out is None:
        memory = MemorySink(models, infos)
        _stream(job, memory, infos)
        return _in_memory(request, job, memory)
    needs = len(models) * sum(info.nbytes for info in infos.values())
    with staged_folder(out, needs=needs) as folder:
        folders = {model: folder / model for model in models}
        for path in folders.values():
            path.mkdir(parents=True, exist_ok=True)
        max_shard = parse_size(request.options.max_shard)
        with closing(FolderSink(folders, infos, max_shard)) as sink:
            _stream(job, sink, infos)
        _write_companions(request, job, folders, hashes)
    return out


def plan_request(request: Request) -> Plan:
    """What a fusion would cost; raises for everything that can be found wrong beforehand."""
    job = _prepare(request)
    dtype = _dtype(request.options)
    return make_plan(
        request.method,
        job.fusers,
        job.stream,
        models=len(_model_names(request, job)),
        itemsize=dtype.itemsize if dtype else None,
    )


def _prepare(request: Request) -> _Job:
    entry = fusers.get(request.method)
    options = request.options
    members, base = _open(request, entry)
    alignment = align(
        members, base, exclude=options.exclude, intersect=options.intersect, head=options.head
    )
    accumulate = torch.float64 if options.accumulate == "fp64" else torch.float32
    stream = Stream(alignment, _device(options.device), accumulate, options.threads)
    names = [row.name for row in alignment.rows]
    made: list[Fuser] = []
    of = {}
    for label, params in request.points.items():
        sets = assign(entry, params, names)
        for values in sets.distinct:
            _check_weights(values, len(members))
        of[label] = {name: len(made) + number for name, number in sets.of.items()}
        made += [entry.function(**values) for values in sets.distinct]
    if not entry.tags.get("linear"):
        statistics = {name: len(made) for name in names if is_batch_norm_statistic(name)}
        if statistics:
            made.append(_STATISTICS)
            of = {label: {**numbers, **statistics} for label, numbers in of.items()}
    switches = any(isinstance(f, SwitchFuser) or getattr(f, "switches", False) for f in made)
    return _Job(entry, stream, made, of, switches)


def _open(
    request: Request, entry: Entry[Callable[..., Any]]
) -> tuple[list[Source], Source | None]:
    found = dict(request.members)
    base = request.base
    wanted = entry.tags.get("members")
    if entry.tags.get("pair") and base is not None:
        # Two models, one of them called the base: the base is the first of the pair.
        found, base = {"base": base, **found}, None
    if wanted is not None and len(found) != wanted:
        raise BadParameterError(
            f"{request.method}: expected exactly {wanted} models, got {len(found)}."
        )
    if len(found) < entry.tags.get("at_least", 1):
        raise BadParameterError(
            f"{request.method}: expected at least {entry.tags['at_least']} members, "
            f"got {len(found)}."
        )
    if entry.tags.get("needs_base") and base is None:
        raise BadParameterError(
            f"{request.method}: needs the model that the members were fine-tuned from.",
            hint="Give it as base (--base).",
        )
    opened_base = None if base is None else open_checkpoint(_as_state(base), label="base")
    members = [
        open_checkpoint(_as_state(spec), label=label, base=opened_base)
        for label, spec in found.items()
    ]
    used = opened_base if entry.tags.get("needs_base") else None
    return members, used


def _as_state(spec: Any) -> Any:
    return spec.state_dict() if isinstance(spec, nn.Module) else spec


def _check_weights(params: Mapping[str, Any], count: int) -> None:
    weights = params.get("weights")
    if weights is not None and len(weights) != count:
        raise BadParameterError(
            f"weights: expected one per member ({count}), got {len(weights)}."
        )


def _device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise BadParameterError(f"device: {name!r} was asked for, but torch sees no CUDA device.")
    return name


def _dtype(options: Options) -> torch.dtype | None:
    if options.dtype is None:
        return None
    dtype: torch.dtype = getattr(torch, DTYPES[options.dtype])
    return dtype


def _output_infos(alignment: Alignment, options: Options) -> dict[str, TensorInfo]:
    dtype = _dtype(options)
    return {
        name: info._replace(dtype=dtype) if dtype and info.dtype.is_floating_point else info
        for name, info in alignment.infos().items()
    }


def _model_names(request: Request, job: _Job) -> list[str]:
    if not job.switches:
        return list(request.points)
    members = short_names(list(request.members))
    return [f"{label}/{member}" if label else member for label in request.points for member in members]


def short_names(labels: list[str]) -> list[str]:
    """Folder names for members: the last part of a path, numbered where that is not unique."""
    names: list[str] = []
    for label in labels:
        name = re.sub(r"[^\w.-]+", "-", Path(label).name) or "member"
        while name in names:
            name += "-2"
        names.append(name)
    return names


def _stream(job: _Job, sink: Sink, infos: Mapping[str, TensorInfo]) -> None:
    stream = job.stream
    alignment = stream.alignment
    rows = [row for row in alignment.rows if not is_batch_norm_statistic(row.name)]
    ready = stream.prepare(job.fusers, rows or alignment.rows)
    members = short_names([source.label for source in alignment.members])
    aliases: dict[str, list[str]] = {}
    for alias, name in alignment.tied.items():
        aliases.setdefault(name, []).append(alias)
    same = any(f.keeps_equal for f in ready if isinstance(f, TensorFuser)) and _all_equal(stream)

    def put(model: str, name: str, values: Tensor, start: int) -> None:
        for target in (name, *aliases.get(name, ())):
            if target in infos:
                sink.write(model, target, values.to(infos[target].dtype), start)

    def work(piece: Piece) -> None:
        slab = stream.slab(piece)
        for label, of in job.of.items():
            fuser = ready[of[piece.row.name]]
            if isinstance(fuser, SwitchFuser):
                for member, values in zip(members, fuser.merge(slab), strict=True):
                    put(f"{label}/{member}" if label else member, piece.row.name, values, piece.start)
                continue
            values = slab.member(0) if same and fuser.keeps_equal else fuser.merge(slab)
            if piece.row.name.endswith("running_var"):
                values = sound_variance(slab, values)
            for model in _targets(label, members, job.switches):
                put(model, piece.row.name, values, piece.start)

    def elementwise(row: Row) -> bool:
        return all(ready[of[row.name]].elementwise for of in job.of.values())

    stream.walk(list(stream.pieces(alignment.rows, elementwise)), work)
    for copied in alignment.copies:
        values = copied.source.read(copied.source_name)
        for label in job.of:
            for model in _targets(label, members, job.switches):
                put(model, copied.name, values, 0)


def _targets(label: str, members: list[str], switches: bool) -> list[str]:
    if not switches:
        return [label]
    return [f"{label}/{member}" if label else member for member in members]


def _all_equal(stream: Stream) -> bool:
    """Whether all members, and the base if it is used, are the same; ends at a difference."""
    sources = list(stream.alignment.members)
    for row in stream.alignment.rows:
        first = sources[0].read(row.members[0])
        others = list(zip(sources[1:], row.members[1:], strict=True))
        if stream.alignment.base is not None and row.base is not None:
            others.append((stream.alignment.base, row.base))
        for source, name in others:
            values = source.read(name)
            if values.dtype != first.dtype or not torch.equal(values, first):
                return False
    return True


def _in_memory(request: Request, job: _Job, memory: MemorySink) -> dict[str, Any]:
    weights = memory.weights
    for state in weights.values():
        for alias, name in job.stream.alignment.tied.items():
            if alias in state:
                state[alias] = state[name]
    if not job.switches:
        return dict(weights)
    results: dict[str, Any] = {}
    names = list(request.members)
    folders = short_names([source.label for source in job.stream.alignment.members])
    for label in request.points:
        prefix = f"{label}/" if label else ""
        results[label] = {
            name: weights[prefix + folder] for name, folder in zip(names, folders, strict=True)
        }
    return results


def _write_companions(
    request: Request, job: _Job, folders: Mapping[str, Path], hashes: FileHashes | None
) -> None:
    alignment = job.stream.alignment
    known = hashes.result() if hashes else {}
    parents = [
        Parent(role, str(name), _file_hashes(found, known))
        for role, name, found in [
            *([("base", "base", request.base)] if request.base is not None else []),
            *(("member", name, found) for name, found in request.members.items()),
        ]
    ]
    notes = list(alignment.notes)
    if request.options.bn == "recompute":
        notes.append("BatchNorm statistics are to be re-estimated before use.")
    for (model, folder), label in zip(
        folders.items(), _labels(request, len(folders)), strict=True
    ):
        shorts = request.options.dtype
        copy_companions(
            alignment.template.folder, folder, dtype=DTYPES[shorts] if shorts else None
        )
        params = dict(request.points[label])
        write_card(
            folder,
            Origin(
                method=request.method,
                summary=job.entry.summary,
                paper=job.entry.paper,
                params={**_defaults(job.entry), **params},
                options=request.options.changed(),
                command=request.options.command or _python_call(request, params),
                parents=parents,
                notes=notes if not job.switches else [*notes, f"The model for {Path(model).name}."],
                version=version("stockpot"),
            ),
        )


def _labels(request: Request, folders: int) -> list[str]:
    each = folders // len(request.points)
    return [label for label in request.points for _ in range(each)]


def _file_hashes(found: Any, known: Mapping[Path, str]) -> dict[str, str]:
    if not isinstance(found, Location):
        return {}
    return {path.name: known.get(path, "not computed") for path in found.files}


def _defaults(entry: Entry[Callable[..., Any]]) -> dict[str, Any]:
    return {row.name: row.default for row in entry.parameters if row.default is not None}


def _python_call(request: Request, params: Mapping[str, Any]) -> str:
    base = "" if request.base is None else f", base={_text(request.base)!r}"
    rest = "".join(f", {key}={value!r}" for key, value in {**request.options.changed(), **params}.items())
    return f"stockpot.fuse({request.method!r}, {list(request.members)!r}{base}, out=...{rest})"


def _text(found: Any) -> str:
    return found.label if isinstance(found, Location) else "in memory"
