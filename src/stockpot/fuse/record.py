"""The record of a fusion: what would be made, told without making it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from stockpot.checkpoints.adapter import AdapterSource
from stockpot.checkpoints.clip.settings import translate_settings
from stockpot.checkpoints.clip.translate import TranslatedSource
from stockpot.checkpoints.folder import copy_companions
from stockpot.checkpoints.hashes import FileHashes
from stockpot.checkpoints.locate import ON_A_BASE, Location, base_of_adapter, locate
from stockpot.checkpoints.member_names import member_names
from stockpot.checkpoints.model_card import write_card
from stockpot.checkpoints.open import open_checkpoint
from stockpot.checkpoints.record import MEMBER, Input, Record, plain, write_record
from stockpot.checkpoints.seen import Seen, read_seen
from stockpot.checkpoints.stacked import StackedSource
from stockpot.datasets.dataset import Dataset
from stockpot.engine import device_name, pick_device
from stockpot.errors import BadCheckpointError, BadParameterError
from stockpot.fuse import fusers
from stockpot.fuse.align import AlignedSource
from stockpot.fuse.finish.then import check_fusion
from stockpot.fuse.job import Job
from stockpot.fuse.learning.assemble import find_data
from stockpot.fuse.learning.learner import learned_files
from stockpot.fuse.request import DTYPES, Options, Request, make_request, split_options
from stockpot.models.classifier import Classifier
from stockpot.models.fingerprint import (
    fingerprint_files,
    fingerprint_tensors,
    settings_files,
    settings_without_place,
    with_dual_encoder,
)
from stockpot.models.inputs import data_inputs, seen_in, seen_of
from stockpot.registry import PRESET
from stockpot.results.provenance import provenance

if TYPE_CHECKING:
    from stockpot.fuse.request import Spec, Tasks


_LATER = ("densities", "gammas", "epsilons")


def fusion_record(
    method: str,
    members: Sequence[Spec] | Mapping[str, Spec],
    *,
    base: Spec | None = None,
    tasks: Tasks | None = None,
    **settings: Any,
) -> Record:
    """The record that `stockpot.fuse` with these arguments would write; nothing is made."""
    options, params = split_options(settings)
    request = make_request(method, members, base, tasks, options, {"": params})
    return request_records(request, FileHashes(request.files).result())[""]


def sweep_records(
    method: str,
    members: Sequence[Spec] | Mapping[str, Spec],
    *,
    key: str,
    values: Sequence[Any],
    base: Spec | None = None,
    tasks: Tasks | None = None,
    **settings: Any,
) -> dict[str, Record]:
    """The record of every point of a sweep, by its label; each is that of a fusion alone."""
    options, params = split_options(settings)
    points = {f"{key}={value}": {**params, key: value} for value in values}
    request = make_request(method, members, base, tasks, options, points)
    return request_records(request, FileHashes(request.files).result())


def request_records(request: Request, known: Mapping[Path, str] | None) -> dict[str, Record]:
    """The records of all points of a request.

    Args:
        request: what is to be fused.
        known: the sha256 of the weight files; without it nothing is hashed, and the records equal
            none of hashed content.
    """
    entry = fusers.get(request.method)
    inputs = _inputs(request, known)
    found = {}
    for label, params in request.points.items():
        values = plain(check_fusion(entry, params))
        # What is unset of the later parameters decides nothing, and older records lack it.
        values = {k: v for k, v in values.items() if v is not None or k not in _LATER}
        if preset := params.get(PRESET):
            values[PRESET] = preset
        seed = values.pop("seed", None)
        begun = _begun(values.get("init"))
        if begun:
            values["init"] = begun[0].name
        found[label] = Record(
            verb="fuse",
            method=request.method,
            parameters=values | plain(request.options.deciding()),
            seed=seed,
            edition=entry.tags.edition,
            inputs=[*inputs, *begun],
        )
    return found


def _begun(init: Any) -> list[Input]:
    """The file of coefficients that a method starts from, where it does not start from a number."""
    if not isinstance(init, str) or not Path(init).is_file():
        return []
    content = fingerprint_files([Path(init)])
    return [Input(role="init", name=Path(init).name, source=init, fingerprint=content)]


def request_data(request: Request) -> list[Dataset]:
    """The datasets of a request, in the order of the members where they are named.

    The name of one means its test split to a method that learns, as adaptation is customary, and
    its training split where BatchNorm statistics are estimated.
    """
    learns = fusers.get(request.method).tags.learns
    return find_data(request.tasks, tuple(request.members), split=None if learns else "train")


def _inputs(request: Request, known: Mapping[Path, str] | None) -> list[Input]:
    found = [] if request.base is None else [("base", _base_name(request.base), request.base)]
    names = member_names(list(request.members))
    found += [(MEMBER, *pair) for pair in zip(names, request.members.values(), strict=True)]
    inputs = []
    for role, name, spec in found:
        fingerprint = "" if known is None else _content(spec, known)
        source = _place(spec)
        files = {path.name: (known or {})[path] for path in getattr(spec, "files", ()) if known}
        inputs.append(
            Input(role=role, name=name, source=source, fingerprint=fingerprint, files=files)
        )
        if known is None:
            continue
        for under in _under(request, spec):
            inputs.append(
                Input(
                    role="adapted", name=name, source=under.label,
                    fingerprint=_content(under, known),
                )
            )  # fmt: skip
    for data in request_data(request):
        inputs += data_inputs("data", data)
    if request.options.load is not None:
        learned = learned_files(request.options.load)
        if not all(path.is_file() for path in learned):
            raise BadParameterError(
                f"load: expected {' and '.join(map(str, learned))}, which `save` writes; "
                "got nothing."
            )
        content = "" if known is None else fingerprint_files(learned)
        place = str(request.options.load)
        inputs.append(
            Input(role="learned", name=learned[0].stem, source=place, fingerprint=content)
        )
    return inputs


def _content(spec: Any, known: Mapping[Path, str]) -> str:
    """The sha256 of the weights and of the configuration beside them."""
    if isinstance(spec, Location) and not spec.files:  # a package gives it
        return fingerprint_tensors(_all_tensors(open_checkpoint(spec)))
    if isinstance(spec, Location):
        beside = settings_files(spec.folder) if spec.folder is not None else []
        if spec.format in ON_A_BASE and spec.folder is not None:
            beside.append(spec.folder / f"{spec.format}_config.json")
        if spec.folder is None:
            return fingerprint_files(spec.files, known)
        files = [*spec.files, *beside]
        content = fingerprint_files(files, {**known, **settings_without_place(spec.folder)})
        return with_dual_encoder(content, spec.folder)
    if isinstance(spec, nn.Module):
        return fingerprint_tensors(spec.state_dict().items())
    if isinstance(spec, Mapping):
        return fingerprint_tensors(spec.items())
    if isinstance(spec, AlignedSource):  # its files say what was aligned, and not to what
        return fingerprint_tensors(spec.state.items())
    if spec.files:
        content = fingerprint_files(spec.files, known)
        settings = spec.settings if isinstance(spec, AdapterSource) else spec.label
        derived = isinstance(spec, AdapterSource | StackedSource)
        return sha256(f"{content}:{settings}".encode()).hexdigest() if derived else content
    return fingerprint_tensors(_all_tensors(spec))


def _all_tensors(source: Any) -> list[tuple[str, Tensor]]:
    return [(name, source.read(name)) for name in source.tensors()]


def _under(request: Request, spec: Any) -> list[Location]:
    """The models that a LoRA adapter lies on by its own word, itself an adapter or not.

    Members lie on the base that is given, where one is.
    """
    found: list[Location] = []
    if request.base is not None and spec is not request.base:
        return found
    while isinstance(spec, Location) and spec.format in ON_A_BASE:
        spec = locate(base_of_adapter(spec))
        if spec in found:
            raise BadCheckpointError(f"{spec.label}: is an adapter of itself.")
        found.append(spec)
    return found


def _base_name(spec: Any) -> str:
    return _place(spec).rstrip("/").rpartition("/")[2]


def _place(spec: Any) -> str:
    in_files = isinstance(spec, Location | AdapterSource | StackedSource)
    return str(spec.label) if in_files else "in memory"


def seen_by(request: Request) -> Seen:
    """The images that the models of a fusion have seen, and those that its method learns from."""
    specs = [spec for spec in (request.base, *request.members.values()) if spec is not None]
    files = [*request.files]
    found = Seen()
    for spec in specs:
        for under in _under(request, spec):
            files += under.files
        if isinstance(spec, Classifier):
            found |= seen_of(spec)
    for folder in dict.fromkeys(file.parent for file in files):
        found |= read_seen(folder)
    for data in request_data(request):
        found |= seen_in("fusing", data)
    return found


def write_companions(job: Job, options: Options, folder: Path) -> None:
    """Put config, processor and tokenizer files beside the weights of every model of a job."""
    template = job.stream.alignment.template
    layers = template.layers if isinstance(template, StackedSource) else None
    dtype = DTYPES[options.dtype] if options.dtype else None
    for label in job.of:
        heads = job.heads(label)
        for model in job.models(label):
            place = folder / model
            # A head's classes stand in the config of the member that it comes from.
            own = heads[model][0].source.folder if model in heads else None
            copy_companions(own or template.folder, place, dtype=dtype, layers=layers)
            if isinstance(template, TranslatedSource):
                translate_settings(template.folder, place, template.tensors(), template.program)


def write_records(
    job: Job,
    options: Options,
    folder: Path,
    records: Mapping[str, Record],
    details: Mapping[str, Mapping[str, Any]],
    seen: Seen,
) -> None:
    """Write the record and the card of every model of a job.

    Args:
        job: what was fused.
        options: how.
        folder: where.
        records: label of a point -> what was asked.
        details: model -> what came of it.
        seen: the images that members, base and method saw.
    """
    versions = provenance(device_name(pick_device(job.stream.device))).model_dump()
    for label, asked in records.items():
        for model, member in zip(job.models(label), job.members, strict=False):
            notes = list(job.stream.alignment.notes)
            own = asked
            if job.switches:
                notes.append(f"This is the model for {member}.")
                # Models of one fusion differ by the member that they are for.
                own = asked.model_copy(
                    update={"parameters": {**asked.parameters, "member": member}}
                )
            found = {
                "command": options.command, "notes": notes, **details.get(model, {}),
            }  # fmt: skip
            whole = folder / label if job.module else folder / model
            write_card(
                whole,
                own.model_copy(update={"versions": versions, "details": found}),
                summary=job.entry.summary,
                paper=job.entry.paper,
                seen=seen,
            )
        if job.switches:  # the folder that holds them is made as one, and known again as one
            write_record(folder / label, asked.model_copy(update={"versions": versions}))
