"""Write what belongs beside fused weights: config, processor files and the model card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stockpot.checkpoints.card import Origin, Parent, write_card
from stockpot.checkpoints.folder import copy_companions
from stockpot.checkpoints.hashes import FileHashes
from stockpot.checkpoints.locate import Location
from stockpot.checkpoints.member_names import member_names
from stockpot.fuse.job import Job
from stockpot.fuse.request import DTYPES, Request
from stockpot.results.provenance import package_version


def write_companions(request: Request, job: Job, folder: Path, hashes: FileHashes | None) -> None:
    """Complete every model folder of a job."""
    template = job.stream.alignment.template.folder
    dtype = DTYPES[request.options.dtype] if request.options.dtype else None
    parents = _parents(request, hashes.result() if hashes else {})
    for label, params in request.points.items():
        for model in job.models(label):
            copy_companions(template, folder / model, dtype=dtype)
            write_card(
                folder / model,
                Origin(
                    method=request.method,
                    summary=job.entry.summary,
                    paper=job.entry.paper,
                    params={**_defaults(job), **params},
                    options=request.options.changed(),
                    command=request.options.command or _python_call(request, params),
                    parents=parents,
                    notes=_notes(request, job, model),
                    version=package_version("stockpot"),
                ),
            )


def _parents(request: Request, known: Mapping[Path, str]) -> list[Parent]:
    found = [("member", _text(spec, name), spec) for name, spec in request.members.items()]
    if request.base is not None:
        found.insert(0, ("base", _text(request.base), request.base))
    return [Parent(role, name, _file_hashes(spec, known)) for role, name, spec in found]


def _file_hashes(spec: Any, known: Mapping[Path, str]) -> dict[str, str]:
    return {path.name: known.get(path, "not computed") for path in getattr(spec, "files", ())}


def _notes(request: Request, job: Job, model: str) -> list[str]:
    notes = list(job.stream.alignment.notes)
    if request.options.bn == "recompute":
        notes.append("BatchNorm statistics are averages, to be re-estimated before use.")
    if job.switches:
        notes.append(f"This is the model for {Path(model).name}.")
    return notes


def _defaults(job: Job) -> dict[str, Any]:
    return {row.name: row.default for row in job.entry.parameters if row.default is not None}


def _python_call(request: Request, params: Mapping[str, Any]) -> str:
    base = "" if request.base is None else f", base={_text(request.base)!r}"
    settings = {**request.options.changed(), **params}
    rest = "".join(f", {key}={value!r}" for key, value in settings.items())
    members = {name: _text(spec, name) for name, spec in request.members.items()}
    given = list(members.values())
    shown = given if member_names(given) == list(members) else members
    return f"stockpot.fuse({request.method!r}, {shown!r}{base}, out=...{rest})"


def _text(spec: Any, otherwise: str = "in memory") -> str:
    return spec.label if isinstance(spec, Location) else otherwise
