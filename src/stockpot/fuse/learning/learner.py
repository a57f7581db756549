"""Methods that learn before they merge, and what they learned.

- `DataFuser`: learns from models and data first, and then is a `TensorFuser`.
- `ModuleFuser`: the same, and adds parts (routers, experts) to the architecture: the result is a
  module with a forward of its own.

What was learned is tensors and facts that can be saved and used again: `NAME.safetensors` holds
coefficients, masks, statistics or routers, and `NAME.json` says which method made them, for which
members and tensors, and how.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from stockpot.checkpoints.layouts import plain_name
from stockpot.errors import BadCheckpointError, BadParameterError
from stockpot.files import write_atomic
from stockpot.foreign import read_json_object, reading
from stockpot.fuse.fuser import Fuser, TensorFuser
from stockpot.fuse.fusionbench.merging_weights import is_merging_weights
from stockpot.fuse.learning.memory import Held
from stockpot.fuse.learning.task_pool import TaskPool


@dataclass(frozen=True)
class Learned:
    """Tensors by name, and facts about how they came to be."""

    tensors: Mapping[str, Tensor]
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DataFuser:
    """A method that learns from data what to do with the tensors."""

    learn: Callable[[TaskPool], Learned]
    """Runs the models; what it returns can be saved and used again instead of learning."""
    fuser: Callable[[Learned], Fuser]
    """The method once it has learned."""
    held: tuple[Held, ...] = (Held(images=32),)
    """What its stages hold in memory, for the plan."""


@dataclass(frozen=True)
class ModuleFuser:
    """A method whose result has a forward of its own."""

    kind: str
    """The kind of module, as `stockpot.models.modules` knows it."""
    learn: Callable[[TaskPool], Learned]
    fuser: Callable[[Learned], TensorFuser]
    """Makes the plain weights under the module."""
    parts: Callable[[TaskPool, Learned], tuple[dict[str, Tensor], dict[str, Any]]]
    """What is added to them: tensors by name, and settings."""
    held: tuple[Held, ...] = (Held(images=32, of_each=1),)
    """What its stages hold in memory, for the plan."""


Learner = DataFuser | ModuleFuser


@dataclass(frozen=True)
class Record:
    """Who learned: the method, its members and the tensors that are fused."""

    method: str
    members: tuple[str, ...]
    names: tuple[str, ...]
    params: Mapping[str, Any]


def save_learned(path: str | Path, learned: Learned, record: Record) -> Path:
    """Write both files; each appears whole or not at all."""
    from safetensors.torch import save

    target = _tensors_file(path)
    tensors = {name: value.detach().cpu().contiguous() for name, value in learned.tensors.items()}
    write_atomic(target, save(tensors))
    about = {
        "method": record.method,
        "members": list(record.members),
        "tensors": [plain_name(name) for name in record.names],
        "params": dict(record.params),
        "facts": dict(learned.facts),
    }
    write_atomic(target.with_suffix(".json"), json.dumps(about, indent=1, default=str) + "\n")
    return target


def load_learned(path: str | Path, record: Record) -> Learned:
    """Read what was saved, if it was made by this method for as many members and these tensors."""
    from safetensors.torch import load_file

    target = _tensors_file(path)
    about_file = target.with_suffix(".json")
    if not target.is_file() or not about_file.is_file():
        raise BadParameterError(
            f"load: expected {target} and {about_file.name}, which `save` writes; got nothing."
        )
    about = read_json_object(about_file, BadCheckpointError)
    with reading(f"load: {target}", BadCheckpointError):
        tensors = dict(load_file(target))
    if about.get("method") != record.method:
        raise BadParameterError(
            f"load: {target} was learned by {about.get('method')!r}, not by {record.method!r}."
        )
    if len(about.get("members", ())) != len(record.members):
        raise BadParameterError(
            f"load: {target} was learned for {len(about.get('members', ()))} members "
            f"({', '.join(about.get('members', ()))}), here are {len(record.members)}."
        )
    order = [str(name) for name in about["members"]]
    if order != list(record.members) and sorted(order) == sorted(record.members):
        raise BadParameterError(
            f"load: {target} was learned for the members in the order {', '.join(order)}, here "
            f"they are {', '.join(record.members)}.",
            hint="Give them in that order: what was learned belongs to each by its place.",
        )
    _same_tensors(target, about.get("tensors", []), [plain_name(name) for name in record.names])
    return Learned(tensors, {**about.get("facts", {}), "loaded_from": str(path)})


def _same_tensors(target: Path, saved: Sequence[str], present: Sequence[str]) -> None:
    if list(saved) == list(present):
        return
    differing = sorted(set(saved) ^ set(present))
    shown = ", ".join(differing[:3]) or "their order"
    raise BadCheckpointError(
        f"load: {target} was learned for {len(saved)} tensors, here are {len(present)}; they "
        f"differ in {shown}."
    )


def learned_files(path: str | Path) -> tuple[Path, ...]:
    """The files of one path: tensors, and what is known about them; one file of others."""
    if is_merging_weights(path):
        return (Path(path),)
    target = _tensors_file(path)
    return target, target.with_suffix(".json")


def _tensors_file(path: str | Path) -> Path:
    given = Path(path)
    return given if given.suffix == ".safetensors" else given.with_name(given.name + ".safetensors")
