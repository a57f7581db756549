"""From a request with data to a pool: load the architecture, find heads, bind tensors."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stockpot.checkpoints.locate import ON_A_BASE, Location
from stockpot.checkpoints.source import Source
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.datasets.words.conventions import words_of
from stockpot.datasets.words.words import Words
from stockpot.errors import BadCheckpointError, BadDataError, BadParameterError
from stockpot.fuse.learning.names import bare, tensor_places
from stockpot.fuse.learning.task_pool import Task, TaskPool
from stockpot.fuse.stream import Stream
from stockpot.models.classifier import Classifier
from stockpot.models.load import Vocabulary, load_for, words_for
from stockpot.models.zero_shot import ZeroShotNetwork, with_classes
from stockpot.pool.layout import put_tensor

Data = str | Path | Dataset
_NO_TASK = Vocabulary(("thing",), ("{}",))


def find_data(tasks: Any, members: Sequence[str], split: str | None = None) -> list[Dataset]:
    """The datasets, in the order of the members where they are named.

    Of a name this split, without one the test split, as adaptation is customary; or that of
    `NAME@SPLIT`.
    """
    if tasks is None:
        return []
    if isinstance(tasks, str | Path | Dataset):
        tasks = [tasks]
    if isinstance(tasks, Mapping):
        strange = [name for name in tasks if name not in members]
        if strange or len(tasks) != len(members):
            raise BadParameterError(
                f"tasks: expected one dataset for each of {', '.join(members)}, got "
                f"{', '.join(map(str, tasks)) or 'none'}."
            )
        tasks = [tasks[name] for name in members]
    return [data if isinstance(data, Dataset) else _loaded(str(data), split) for data in tasks]


def _loaded(text: str, split: str | None) -> Dataset:
    name, at, chosen = text.rpartition("@")
    if at and name and not Path(text).exists():
        return load_dataset(name, split=chosen)
    return load_dataset(text, split=split)


def assemble(
    stream: Stream, members: Mapping[str, Any], base: Any | None, data: Sequence[Dataset]
) -> TaskPool:
    """Load the working model, give every task its head, and put the members beside each other."""
    labels = tuple(members)
    loaded, architecture = _find_architecture(members, base)
    first = data[0] if data else None
    model = _load(architecture, first)
    template = stream.alignment.template
    names = [row.name for row in stream.alignment.rows]
    found = tensor_places(
        names, model, template, template.tensors(), lambda folder: _load(folder, first)
    )
    places = [found[name] for name in names]
    if isinstance(architecture, Classifier):
        model = copy.deepcopy(model)  # the user's own stays as it is
    tasks = []
    for index, images in enumerate(data):
        name = labels[index] if len(data) == len(labels) else str(images)
        each = len(data) == len(labels)
        source = loaded[labels[index]] if each else architecture
        opened = stream.alignment.members[index if each else 0]
        words = words_for(architecture, images) or words_of(images)
        tasks.append(_task(name, images, words, source, opened, model, set(places), stream.device))
    return TaskPool(stream, model, places, _only_differing(tasks, model, stream.device), labels)


def working_model(
    members: Mapping[str, Any], base: Any | None, data: Sequence[Dataset]
) -> Classifier:
    """The architecture that learning would run, as a model that may be changed."""
    _, architecture = _find_architecture(members, base)
    model = _load(architecture, data[0] if data else None)
    return copy.deepcopy(model) if isinstance(architecture, Classifier) else model


def _find_architecture(
    members: Mapping[str, Any], base: Any | None
) -> tuple[dict[str, str | Classifier | None], str | Classifier]:
    """What models can be loaded from, by name, and the first of it: the base's, or a member's."""
    sources = {"base": base, **members} if base is not None else dict(members)
    loaded = {name: _model_source(spec) for name, spec in sources.items()}
    architecture = next((source for source in loaded.values() if source is not None), None)
    if architecture is None:
        raise BadParameterError(
            "data-driven fusion runs the members: expected a model folder or a classifier as base "
            "or first member, got state dicts only."
        )
    return loaded, architecture


def _only_differing(tasks: Sequence[Task], model: Classifier, device: str) -> list[Task]:
    """Leave with the tasks what differs between them; the model gets what they have in common."""
    state = {k: v.to(device, torch.float32) for k, v in model.state_dict().items()}
    kept: list[dict[str, Tensor]] = [{} for _ in tasks]
    for place in sorted({place for task in tasks for place in task.own}):
        values = [task.own.get(place, state[place]) for task in tasks]
        if all(torch.equal(value, values[0]) for value in values):
            put_tensor(model, place, values[0].to(model.device))
            continue
        for own, value in zip(kept, values, strict=True):
            own[place] = value
    return [replace(task, own=own) for task, own in zip(tasks, kept, strict=True)]


def _task(
    name: str,
    data: Dataset,
    words: Words,
    source: str | Classifier | None,
    opened: Source,
    model: Classifier,
    fused: set[str],
    device: str,
) -> Task:
    """A task with the tensors that are its own: the text head of its classes, or its head."""
    if isinstance(model.network, ZeroShotNetwork):
        own = with_classes(model, data.classes, words)
    elif source is None:  # weights without an architecture of their own
        return _from_weights(name, data, opened, model, fused, device)
    else:
        own = _load(source, data)
        if own.preprocess != model.preprocess:
            raise BadCheckpointError(
                f"{name} sees pictures as {own.preprocess}, the first model as {model.preprocess}; "
                "one model can only have one of them."
            )
    kept = {
        place: value.detach().to(device, torch.float32)
        for place, value in own.state_dict().items()
        if place not in fused and value.is_floating_point() and not _is_text(place)
    }
    return _checked(Task(name, data, own.classes, kept))


def _from_weights(
    name: str, data: Dataset, opened: Source, model: Classifier, fused: set[str], device: str
) -> Task:
    plain = {bare(key): key for key in opened.tensors()}
    own = {
        place: opened.read(plain[bare(place)]).detach().to(device, torch.float32)
        for place, value in model.state_dict().items()
        if place not in fused and value.is_floating_point() and bare(place) in plain
    }
    return _checked(Task(name, data, model.classes, own))


def _checked(task: Task) -> Task:
    """The task, if its images can be scored; those who learn without labels want no others."""
    try:
        _ = task.scorer
    except BadDataError as problem:
        raise BadDataError(f"{task.name}: {problem.message}", hint=problem.hint) from None
    return task


def _model_source(spec: Any) -> str | Classifier | None:
    """What `load_model` takes, where there is an architecture."""
    if isinstance(spec, Classifier):
        return spec
    if isinstance(spec, Location):
        has_config = spec.folder is not None and (spec.folder / "config.json").is_file()
        return str(spec.folder) if has_config and spec.format not in ON_A_BASE else None
    if isinstance(spec, nn.Module):
        raise BadParameterError(
            f"data-driven fusion needs to know how a model sees pictures: expected a folder or a "
            f"classifier of stockpot.load_model, got {type(spec).__name__}."
        )
    return None


def _load(source: str | Path | Classifier, data: Dataset | None) -> Classifier:
    return load_for(source, data if data is not None else _NO_TASK)


def _is_text(place: str) -> bool:
    return ".text_model." in place or ".text_projection." in place
