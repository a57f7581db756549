"""Folders of modules: plain weights in `base/`, beside them the added parts and a config.

    out/config.json            model_type stockpot_module, the kind, its settings, members and tasks
    out/model.safetensors      routers, experts, corrections, and heads where every task has its own
    out/base/                  an ordinary model folder: the architecture and its fused weights

An ensemble has a folder for each member in their place (`ensemble.py`).

`load_model(out)` reads it. Tasks are told apart by their classes: the head (or correction) of the
task with the data's classes is used.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stockpot.checkpoints.resolve import Resolved, resolve
from stockpot.errors import BadCheckpointError, BadParameterError, UserError
from stockpot.files import write_atomic
from stockpot.models.classifier import Classifier, Origin
from stockpot.models.config import ENSEMBLE, MODULE_TYPE, Kind, has_text_head, kind_of, read_config
from stockpot.models.fine_tuned import load_fine_tuned
from stockpot.models.fingerprint import fingerprint_folder
from stockpot.models.huggingface import load_huggingface
from stockpot.models.modules.ensemble import load_ensemble
from stockpot.models.zero_shot import load_zero_shot

PLAIN_LOADERS: Mapping[Kind, Callable[..., Classifier]] = {
    "fine_tuned": load_fine_tuned,
    "zero_shot": load_zero_shot,
    "classifier": load_huggingface,
}
"""What loads a folder that is no module; that of a module holds such a folder."""
_KINDS = {
    "weight_ensemble": "stockpot.models.modules.weight_ensemble:add_experts",
    "low_rank_experts": "stockpot.models.modules.low_rank:add_experts",
    "rank_one_experts": "stockpot.models.modules.rank_one:add_experts",
    "subspace_experts": "stockpot.models.modules.subspace:add_subspaces",
    "surgery": "stockpot.models.modules.surgery:add_corrections",
    "whole_ensemble": "stockpot.models.modules.whole_ensemble:add_router",
}
Build = Callable[[nn.Module, Mapping[str, Tensor], Mapping[str, Any], "int | None"], nn.Module]


@dataclass(frozen=True)
class Module:
    """What is added to plain weights."""

    kind: str
    members: tuple[str, ...]
    settings: Mapping[str, Any]
    tasks: Sequence[Mapping[str, Any]]
    """Name and classes of each task."""
    tensors: Mapping[str, Tensor]
    facts: Mapping[str, Any] = field(default_factory=dict)


def write_module(folder: Path, module: Module) -> None:
    """Complete a folder whose `base` is written."""
    from safetensors.torch import save

    base = folder / "base"
    tensors = {name: value.contiguous() for name, value in module.tensors.items()}
    # An empty file of tensors is no safetensors file to some readers.
    tensors = tensors or {"nothing": torch.zeros(1)}
    write_atomic(folder / "model.safetensors", save(tensors, metadata={"format": "pt"}))
    config = {
        "model_type": MODULE_TYPE,
        "kind": module.kind,
        "members": list(module.members),
        "settings": dict(module.settings),
        "tasks": [dict(task) for task in module.tasks],
        "architecture": read_config(base),
        "base_fingerprint": fingerprint_folder(base),
        "facts": dict(module.facts),
    }
    write_atomic(folder / "config.json", json.dumps(config, indent=1, default=str) + "\n")


def load_module(
    place: Resolved,
    *,
    classes: tuple[str, ...] | None = None,
    names: tuple[str, ...] | None = None,
    templates: tuple[str, ...] = ("a photo of a {}.",),
    task: str | None = None,
    dtype: str = "float32",
    name: str = "",
) -> Classifier:
    """Load a module.

    Args:
        place: its folder.
        classes: the classes to tell apart: they make the head of a dual encoder, and say which
            task's head or correction is meant.
        names: how the classes are called in prompts, where not as they are.
        templates: prompts with `{}` for the name.
        task: the task by its name, instead of by its classes.
        dtype: of the weights in memory.
        name: how messages call it.
    """
    from safetensors.torch import load_file

    folder, source = place.local(), name or place.text
    config = read_config(folder)
    head = {"classes": classes, "names": names, "templates": tuple(templates)}

    def load_plain(where: Resolved, own: Mapping[str, Any]) -> Classifier:
        told = head if has_text_head(own) else {}
        return PLAIN_LOADERS[kind_of(own)](where, dtype=dtype, **told)

    if config["kind"] == ENSEMBLE:
        return load_ensemble(place, load_plain, name)
    number = _task_number(config, classes, task, source)
    if classes is None and number is not None:
        classes = tuple(config["tasks"][number]["classes"])
    if classes is not None:
        head["classes"] = classes
    plain = load_plain(resolve(folder / "base"), read_config(folder / "base"))
    tensors = {k: v.to(getattr(torch, dtype)) if v.is_floating_point() else v
               for k, v in load_file(folder / "model.safetensors").items()}  # fmt: skip
    if number is not None and _put_head(plain, tensors, number):
        plain.classes = tuple(config["tasks"][number]["classes"])
    try:
        network = _builder(config["kind"])(plain.network, tensors, config["settings"], number)
    except (KeyError, AttributeError) as problem:
        raise BadCheckpointError(
            f"{source}: the module does not fit its base: {problem}.",
            hint="It may have been made with another version of transformers.",
        ) from problem
    origin = Origin(source, f"{config['kind']} of {plain.origin.architecture}",
                    fingerprint_folder(folder))  # fmt: skip
    return Classifier(Saved(network, source), plain.preprocess, plain.classes, origin)


class Saved(nn.Module):
    """A module's network; it is kept by copying its folder."""

    def __init__(self, network: nn.Module, source: str) -> None:
        super().__init__()
        self.inner = network
        self.source = source

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.inner(pixels)
        return logits

    def features(self, pixels: Tensor) -> Tensor:
        """The representation before the head."""
        found: Tensor = self.inner.features(pixels)  # type: ignore[operator]
        return found

    def save(self, folder: Path) -> None:
        """Training a module further is not supported, so that its folder is all there is."""
        raise UserError(
            f"{self.source} is a module made by fusion and cannot be saved as another model.",
            hint="Copy its folder.",
        )


def _task_number(
    config: Mapping[str, Any], classes: tuple[str, ...] | None, task: str | None, source: str
) -> int | None:
    tasks = config["tasks"]
    if task is not None:
        names = [known["name"] for known in tasks]
        if task not in names:
            raise BadParameterError(
                f"{source}: no task {task!r}. Tasks: {', '.join(names) or 'none'}."
            )
        return int(names.index(task))
    if classes is None:
        return 0 if len(tasks) == 1 else None
    wanted = list(classes)
    return next((i for i, known in enumerate(tasks) if known["classes"] == wanted), None)


def _put_head(model: Classifier, tensors: Mapping[str, Tensor], number: int) -> bool:
    prefix = f"heads.{number}."
    found = {key.removeprefix(prefix): v for key, v in tensors.items() if key.startswith(prefix)}
    for place, value in found.items():
        parent, _, leaf = place.rpartition(".")
        owner = model.get_submodule(parent)
        if leaf in owner._parameters:
            owner._parameters[leaf] = nn.Parameter(value)
        else:
            owner._buffers[leaf] = value
    return bool(found)


def _builder(kind: str) -> Build:
    if kind not in _KINDS:
        known = ", ".join(_KINDS)
        raise BadCheckpointError(f"unknown kind of module {kind!r}. Known: {known}.")
    module, _, attribute = _KINDS[kind].partition(":")
    build: Build = getattr(importlib.import_module(module), attribute)
    return build
