"""The record of a made model: what it was made from and how, so that it can be told from another.

Every folder that fusing, hardening, seasoning or creating a model writes holds one `stockpot.json`,
and so does a folder of corrupted pictures.
Its digest covers the question (method, parameters, seed and the content of all that was read) and
not the answer: two records with one digest describe the same model, and a record with another
digest describes a model that has to be made anew.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, computed_field

from stockpot.errors import BadCheckpointError
from stockpot.files import write_atomic

RECORD = "stockpot.json"
"""The file name, in the folder of the model."""
MEMBER = "member"
"""The role of a model that is fused or seasoned with others."""


class Input(BaseModel):
    """A model or a dataset that was read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: str = Field(description="member, base, model, teacher, data, validation, source, ...")
    name: str = Field(description="Of a member part of the question; else for people alone.")
    source: str = Field("", description="Where it lay; another place changes nothing.")
    fingerprint: str = Field(description="sha256 of its content.")
    files: dict[str, str] = Field(
        default_factory=dict, description="The sha256 of its weight files, where they are known."
    )


class SeenImages(BaseModel):
    """How many images a model has seen; their hashes lie in `seen.npz` beside the record."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    images: dict[str, int] = Field(description="By use: training, validation, seasoning, fusing.")
    sets: dict[str, str] = Field(
        default_factory=dict,
        description="Fingerprints of whole datasets with their use, of parents without hashes.",
    )
    lost: int = Field(0, description="Images of parents whose hashes were not there any more.")
    sha256: str = Field(description="Of seen.npz.")


class Record(BaseModel):
    """How a model was made."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    record_version: Literal[1] = 1
    verb: Literal["new", "fuse", "harden", "season", "corrupt", "export"]
    method: str
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="All of them, defaults included, as plain values."
    )
    seed: int | None = None
    edition: int = Field(1, description="Of the method; another one gives something else.")
    inputs: list[Input] = Field(default_factory=list)
    trained_on: dict[str, str] = Field(
        default_factory=dict,
        description="Corruptions that the training held, and by what; follows from the rest.",
    )
    seen: SeenImages | None = Field(
        None, description="The images that it and its parents saw; not part of the digest."
    )
    versions: dict[str, Any] = Field(
        default_factory=dict, description="Code and machine; not part of the digest."
    )
    details: dict[str, Any] = Field(
        default_factory=dict, description="What came of it: weights, scores, losses, seconds."
    )

    @computed_field  # type: ignore[prop-decorator]
    @property
    def digest(self) -> str:
        """Sixteen hex digits that stand for the question this model answers."""
        question = {
            "verb": self.verb,
            "method": self.method,
            "parameters": self.parameters,
            "seed": self.seed,
            "inputs": [[*_place(one), one.fingerprint] for one in self.inputs],
            **({"edition": self.edition} if self.edition > 1 else {}),
        }
        text = json.dumps(question, sort_keys=True, separators=(",", ":"), default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def differences(self, other: Record) -> list[str]:
        """What `other` does differently, in words such as `scale 0.2 -> 0.9`."""
        found = []
        for key in ("verb", "method", "seed", "edition"):
            before, after = getattr(self, key), getattr(other, key)
            if before != after:
                found.append(f"{key} {before} -> {after}")
        found += _changed(self.parameters, other.parameters)
        found += _changed_inputs(self.inputs, other.inputs)
        return found


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    names = [*before, *(name for name in after if name not in before)]
    return [
        f"{name} {before.get(name, 'unset')} -> {after.get(name, 'unset')}"
        for name in names
        if before.get(name) != after.get(name)
    ]


def _place(one: Input) -> tuple[str, str]:
    # Models that are made per member carry the members' names; no other name changes a weight.
    return one.role, one.name if one.role == MEMBER else ""


def _changed_inputs(before: Sequence[Input], after: Sequence[Input]) -> list[str]:
    old, new = _numbered(before), _numbered(after)
    found = [f"{_said(old[place])} left out" for place in old if place not in new]
    for place, one in new.items():
        if place not in old:
            found.append(f"{_said(one)} added")
        elif old[place].fingerprint != one.fingerprint:
            found.append(f"{_said(one)} has other content")
    if not found and list(old) != list(new):
        found.append("the order of the inputs")
    return found


def _numbered(inputs: Sequence[Input]) -> dict[tuple[str, str, int], Input]:
    found: dict[tuple[str, str, int], Input] = {}
    for one in inputs:
        place = _place(one)
        found[*place, sum(known[:2] == place for known in found)] = one
    return found


def _said(one: Input) -> str:
    return f"{one.role} {one.name}".strip()


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as JSON keeps them, so that a record read back has the same digest."""
    found: dict[str, Any] = json.loads(json.dumps(_finite(dict(values)), default=str))
    return found


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_finite(item) for item in (sorted(value) if isinstance(value, set) else value)]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def write_record(folder: Path, record: Record) -> None:
    """Write the record into a model's folder."""
    write_atomic(folder / RECORD, record.model_dump_json(indent=1) + "\n")


def read_record(folder: Path) -> Record | None:
    """The record of a model folder, also one of an earlier version; none where there is none."""
    path = folder / RECORD
    if not path.is_file():
        return _earlier(folder)
    try:
        return Record.model_validate_json(path.read_bytes())
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the document"
        raise BadCheckpointError(
            f"{path} is not a record of this version: {where}: {first['msg']}.",
            hint="Remove the folder and make the model anew.",
        ) from problem


_EARLIER: tuple[tuple[str, Literal["fuse", "harden", "season"]], ...] = (
    ("fusion.json", "fuse"),
    ("training.json", "harden"),
    ("season.json", "season"),
)


def _earlier(folder: Path) -> Record | None:
    """What stood in a file per verb before there was one record.

    Such a file does not hold the content of all that was read, so that its digest equals none of a
    model that would be made now.
    """
    for name, verb in _EARLIER:
        if not (folder / name).is_file():
            continue
        try:
            old = json.loads((folder / name).read_text(encoding="utf-8"))
            method = str(old.pop("method"))
        except (ValueError, KeyError, AttributeError) as problem:
            raise BadCheckpointError(f"{folder / name} is not a record: {problem}.") from problem
        parameters = dict(old.pop("parameters", None) or old.pop("params", None) or {})
        parameters.pop("method", None)
        seed = parameters.pop("seed", old.pop("seed", None))
        data = old.get("data") or []
        inputs = [
            Input(
                role="data",
                name=f"{one.get('name', '')}:{one.get('split', '')}",
                fingerprint=str(one.get("fingerprint", "")),
            )
            for one in (data if isinstance(data, list) else [data])
        ]
        versions = old.pop("provenance", None) or {"stockpot": old.pop("version", "")}
        return Record(
            verb=verb,
            method=method,
            parameters=parameters,
            seed=seed,
            inputs=inputs,
            versions=versions,
            details=old,
        )
    return None
