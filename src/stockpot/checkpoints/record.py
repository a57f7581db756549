"""The record of a made model: what it was made from and how, so that it can be told from another.

Every folder that fusing, hardening, seasoning or creating a model writes holds one `stockpot.json`.
Its digest covers the question (method, parameters, seed and the content of all that was read) and
not the answer: two records with one digest describe the same model, and a record with another
digest describes a model that has to be made anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, computed_field

from stockpot.errors import BadCheckpointError
from stockpot.files import write_atomic

RECORD = "stockpot.json"
"""The file name, in the folder of the model."""


class Input(BaseModel):
    """A model or a dataset that was read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: str = Field(description="member, base, model, teacher, data, validation, source, ...")
    name: str
    source: str = Field("", description="Where it lay; another place changes nothing.")
    fingerprint: str = Field(description="sha256 of its content.")


class Record(BaseModel):
    """How a model was made."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    record_version: Literal[1] = 1
    verb: Literal["new", "fuse", "harden", "season"]
    method: str
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="All of them, defaults included, as plain values."
    )
    seed: int | None = None
    inputs: list[Input] = Field(default_factory=list)
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
            "inputs": [[one.role, one.name, one.fingerprint] for one in self.inputs],
        }
        text = json.dumps(question, sort_keys=True, separators=(",", ":"), default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def differences(self, other: Record) -> list[str]:
        """What `other` does differently, in words such as `scale 0.2 -> 0.9`."""
        found = []
        for key in ("verb", "method", "seed"):
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


def _changed_inputs(before: Sequence[Input], after: Sequence[Input]) -> list[str]:
    old = {(one.role, one.name): one.fingerprint for one in before}
    new = {(one.role, one.name): one.fingerprint for one in after}
    found = [f"{role} {name} left out" for role, name in old if (role, name) not in new]
    for (role, name), fingerprint in new.items():
        if (role, name) not in old:
            found.append(f"{role} {name} added")
        elif old[role, name] != fingerprint:
            found.append(f"{role} {name} has other content")
    if not found and list(old) != list(new):
        found.append("the order of the inputs")
    return found


def write_record(folder: Path, record: Record) -> None:
    """Write the record into a model's folder."""
    write_atomic(folder / RECORD, record.model_dump_json(indent=1) + "\n")


def read_record(folder: Path) -> Record | None:
    """The record of a model folder; none where there is none."""
    path = folder / RECORD
    if not path.is_file():
        return None
    try:
        return Record.model_validate_json(path.read_bytes())
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the document"
        raise BadCheckpointError(
            f"{path} is not a record of this version: {where}: {first['msg']}.",
            hint="Remove the folder and make the model anew.",
        ) from problem
