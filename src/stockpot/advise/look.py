"""Looking at a pool: from sources to facts, streamed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stockpot.advise.barrier import lines
from stockpot.advise.facts import Facts, Member
from stockpot.advise.fitting import fit
from stockpot.advise.geometry import Geometry, geometry, learned
from stockpot.advise.spectra import is_matrix, spectra
from stockpot.checkpoints.alignment import Alignment, align
from stockpot.checkpoints.layouts import (
    by_plain_name,
    is_batch_norm_statistic,
    is_head,
    is_whole_clip,
)
from stockpot.checkpoints.locate import Location, locate
from stockpot.checkpoints.open import open_checkpoint
from stockpot.checkpoints.record import read_record
from stockpot.checkpoints.source import Source
from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadCheckpointError, UserError
from stockpot.fuse.permutation.families import permutation_spec
from stockpot.fuse.stream import Stream, device_for

SAME = 1e-7
"""Weights that lie closer than this share of the base's length are the same ones."""


def look(base: Any, members: Mapping[str, Any], data: Dataset | None) -> Facts:
    """Open headers, walk once over the weights, and once over a few matrices."""
    opened = open_checkpoint(_state(base), label="base")
    found: dict[str, tuple[Member, Source | None]] = {}
    for name, spec in members.items():
        found[name] = _opened(name, spec, opened)
    facts = Facts(
        base=_called(base),
        base_source=_text(base, "BASE"),
        members=tuple(member for member, _ in found.values()),
        base_threat=_record(opened)[1],
        text_head=is_whole_clip(by_plain_name(opened.tensors())),
    )
    comparable = {n: s for n, (m, s) in found.items() if s is not None and m.comparable}
    distinct = _by_file(comparable)
    if not distinct:
        return facts
    whole = all(found[name][0].fits in ("whole", "other classes") for name in distinct)
    alignment = align(list(distinct.values()), opened, head="keep" if whole else "drop")
    facts = _measured(facts, alignment, tuple(distinct))
    facts = replace(facts, members=tuple(_named_once(m, comparable) for m in facts.members))
    if data is not None:
        facts = _walked(facts, base, members, data)
    return facts


def _opened(name: str, spec: Any, base: Source) -> tuple[Member, Source | None]:
    """A member as far as its headers tell."""
    place = locate(spec) if isinstance(spec, str | Path) else _state(spec)
    adapter = isinstance(place, Location) and place.format == "adapter"
    rank = int(dict(place.config).get("r", 0)) if adapter else None
    member = Member(name, _text(spec, name), adapter=rank)
    try:
        source = open_checkpoint(place, label=name, base=base)
    except BadCheckpointError as problem:
        if not adapter:
            raise
        # An adapter is opened on its base, and says itself that this is another one's.
        return replace(member, fits="other architecture", why=problem.message), None
    fits, why = fit(source, base)
    # An adapter's own folder has its record; its source shows the base's.
    folder = place.folder if adapter and isinstance(place, Location) else source.folder
    task, threat = _record(source, folder)
    return replace(member, fits=fits, why=why, task=task, threat=threat), source


def _by_file(sources: Mapping[str, Source]) -> dict[str, Source]:
    """Members without those whose files are an earlier one's."""
    found: dict[str, Source] = {}
    seen = set()
    for name, source in sources.items():
        files = _files(source)
        if not files or files not in seen:
            found[name] = source
            seen.add(files)
    return found


def _files(source: Source) -> tuple[tuple[int, int], ...]:
    return tuple((stat.st_dev, stat.st_ino) for stat in (path.stat() for path in source.files))


def _named_once(member: Member, sources: Mapping[str, Source]) -> Member:
    """The member, with the earlier one whose files it shares."""
    if member.name not in sources or member.same_as:
        return member
    files = _files(sources[member.name])
    for name, source in sources.items():
        if name == member.name:
            break
        if files and _files(source) == files:
            return replace(member, same_as=name)
    return member


def _measured(facts: Facts, alignment: Alignment, names: tuple[str, ...]) -> Facts:
    """What the weights say."""
    stream = Stream(alignment, str(device_for("cpu", heavy=False)), torch.float32, 0)
    shape = geometry(stream, names)
    spectrum = dict(zip(names, spectra(stream), strict=True))
    place = {name: index for index, name in enumerate(names)}
    members = tuple(
        replace(
            member,
            length=float(shape.lengths[place[member.name]]),
            kin=float(shape.kin[place[member.name]]),
            same_as=_same(member.name, names, shape, alignment, facts.base),
            spectrum=spectrum[member.name],
        )
        if member.name in place
        else member
        for member in facts.members
    )
    rows = learned(alignment)
    weights = sum(row.info.numel for row in rows)
    cosines = shape.changes.cosine.tolist()
    usable = [place[m.name] for m in members if m.name in place and m.belongs and not m.same_as]
    return replace(
        facts,
        members=members,
        tensors=len(rows),
        weights=weights,
        matrices=sum(row.info.numel for row in rows if is_matrix(row)) / max(weights, 1),
        batch_norm=any(is_batch_norm_statistic(row.name) for row in alignment.rows),
        permutable=_permutable(alignment.members[0]),
        cosines={a: dict(zip(names, cosines[k], strict=True)) for k, a in enumerate(names)},
        agreement=_over_pairs(shape.changes.sign_agreement, usable),
        relatives=_over_pairs(shape.relatives, list(range(len(names)))),
        layers={
            name: _over_pairs(found, usable)
            for name, found in shape.changes.layers.items()
            if len(usable) > 1
        },
    )


def _over_pairs(table: Tensor, chosen: list[int]) -> float:
    """The mean over all pairs of some rows of a symmetric table; 1 where there is no pair."""
    part = table[chosen][:, chosen]
    pairs = torch.triu_indices(len(chosen), len(chosen), offset=1)
    return float(part[pairs[0], pairs[1]].mean()) if len(chosen) > 1 else 1.0


def _same(
    name: str, names: tuple[str, ...], shape: Geometry, alignment: Alignment, base: str
) -> str:
    own, sources = names.index(name), alignment.members
    start = alignment.base
    if start and float(shape.lengths[own]) < SAME and _same_head(sources[own], start):
        return base
    for earlier in range(own):
        near = float(shape.distances[own, earlier]) < SAME
        if near and _same_head(sources[own], sources[earlier]):
            return names[earlier]
    return ""


def _same_head(first: Source, second: Source) -> bool:
    """Heads may have been left out of the comparison."""
    own, other = (
        {plain: name for plain, name in by_plain_name(source.tensors()).items() if is_head(plain)}
        for source in (first, second)
    )
    return own.keys() == other.keys() and all(
        first.tensors()[name].shape == second.tensors()[other[plain]].shape
        and torch.equal(first.read(name), second.read(other[plain]))
        for plain, name in own.items()
    )


def _permutable(source: Source) -> bool:
    try:
        permutation_spec({name: info.shape for name, info in source.tensors().items()})
    except UserError:
        return False
    return True


def _walked(facts: Facts, base: Any, members: Mapping[str, Any], data: Dataset) -> Facts:
    """The lines to members whose head answers as the base's does."""
    asked = {
        member.name: members[member.name]
        for member in facts.members
        if member.fits == "whole" and not member.same_as
        and isinstance(members[member.name], str | Path)
    }  # fmt: skip
    if not isinstance(base, str | Path):
        return facts
    found = dict(lines(base, asked, data))
    walked = tuple(replace(m, line=found.get(m.name)) for m in facts.members)
    return replace(facts, members=walked, data=data.name, images=len(data))


def _record(source: Source, folder: Path | None = None) -> tuple[str, str]:
    """On what a training says that it was, and against which attack."""
    place = folder or source.folder
    record = read_record(place) if place else None
    if record is None:
        return "", ""
    task = next((given.name for given in record.inputs if given.role == "data"), "")
    task = task.partition(":")[0]  # without its split
    norm, eps = record.parameters.get("norm"), record.parameters.get("eps")
    attacked = record.method == "adversarial" and isinstance(norm, str) and eps is not None
    return task, f"{norm}:{_eps(eps)}" if attacked else ""


def _eps(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    levels = value * 255
    small = value < 2 and abs(levels - round(levels)) < 1e-6
    return f"{round(levels)}/255" if small else f"{value:g}"


def _state(spec: Any) -> Any:
    return spec.state_dict() if isinstance(spec, torch.nn.Module) else spec


def _text(spec: Any, name: str) -> str:
    return str(spec) if isinstance(spec, str | Path) else name


def _called(spec: Any) -> str:
    return str(spec).rstrip("/").rpartition("/")[2] if isinstance(spec, str | Path) else "the base"
