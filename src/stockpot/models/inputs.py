"""Models and datasets as inputs of a record: what was read, told by its content."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from stockpot.checkpoints.diffusers_folder import autoencoder_place, folder_weights
from stockpot.checkpoints.locate import base_of_adapter, locate
from stockpot.checkpoints.record import Input
from stockpot.checkpoints.resolve import resolve
from stockpot.checkpoints.seen import Seen, read_seen, seen_as
from stockpot.datasets.by_content.image_hashes import image_hashes
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.words.conventions import words_of
from stockpot.datasets.words.words import DATA
from stockpot.errors import UserError
from stockpot.models.classifier import Classifier
from stockpot.models.fingerprint import (
    fingerprint_files,
    fingerprint_tensors,
)
from stockpot.models.load import identify

_PLAIN = Dataset.__dataclass_fields__["templates"].default


def model_input(
    role: str,
    source: str | Path | Classifier | Mapping[str, Tensor],
    name: str = "",
    options: Mapping[str, Any] | None = None,
) -> Input:
    """A model as it is now.

    Args:
        role: what it is in the record.
        source: the model.
        name: what it is called; the last part of its place when left out.
        options: those that it is loaded with.
    """
    if isinstance(source, Mapping):
        fingerprint = fingerprint_tensors(source.items())
        return Input(role=role, name=name, source="in memory", fingerprint=fingerprint)
    place = source.origin.source if isinstance(source, Classifier) else str(source)
    return Input(
        role=role,
        name=name or place.rstrip("/").rpartition("/")[2],
        source=place,
        fingerprint=identify(source, options),
    )


def data_inputs(role: str, data: Dataset) -> list[Input]:
    """A dataset, and its own words for the classes where it has some: heads are made of them."""
    found = [Input(role=role, name=str(data), fingerprint=data.fingerprint)]
    said = words_of(data)
    if data.prompts or said.convention != DATA or data.templates != _PLAIN:
        names = data.classes if said.convention == DATA else said.names
        words = repr((names, said.templates, data.prompts))
        fingerprint = hashlib.sha256(words.encode()).hexdigest()
        found.append(Input(role=f"prompts of {role}", name=str(data), fingerprint=fingerprint))
    return found


def mask_inputs(role: str, data: Dataset) -> list[Input]:
    """Where the objects of a dataset are, for what is made with that: its fingerprint is blind."""
    if data.masks is None:
        return []
    content = repr(tuple(data.masks.shape)).encode() + data.masks.contiguous().numpy().tobytes()
    fingerprint = hashlib.sha256(content).hexdigest()
    return [Input(role=f"masks of {role}", name=str(data), fingerprint=fingerprint)]


def seen_of(
    source: str | Path | Classifier | Mapping[str, Tensor],
    options: Mapping[str, Any] | None = None,
) -> Seen:
    """The images that a model and its parents have seen, as far as is written beside them.

    Args:
        source: a model; of one in memory, what it was loaded from and trained on.
        options: those that it is loaded with: an adapter's base and a file of weights count too.
    """
    if isinstance(source, Mapping):
        return Seen()
    if isinstance(source, Classifier):
        return source.history | seen_of(source.origin.source)
    found = Seen()
    try:
        place = resolve(source)
        if not place.has_files and place.path is None:
            return found
        local = place.local()
        folder = local if local.is_dir() else local.parent
        found = read_seen(folder)
        if (folder / "adapter_config.json").is_file():
            found |= seen_of((options or {}).get("base") or base_of_adapter(locate(place)))
    except UserError:
        # What is no source of a model any more (a name in memory, a folder that is gone) tells
        # nothing; whoever loads it says what is wrong.
        return found
    weights = (options or {}).get("weights")
    return found | read_seen(Path(str(weights)).parent) if weights else found


def seen_in(use: str, data: Dataset) -> Seen:
    """The images of a dataset, as seen in one use."""
    return seen_as(use, image_hashes(data.images))


def named_models(
    params: Mapping[str, Any], references: Mapping[str, str]
) -> tuple[dict[str, Any], list[Input]]:
    """Parameters without those that name a model, and these models as inputs.

    Args:
        params: a method's parameters.
        references: parameter -> what it names (`Entry.references`); one inside a mapping is
            `mapping.parameter`.
    """
    inputs: list[Input] = []
    return _without_models(params, "", references, inputs), inputs


def _without_models(
    params: Mapping[str, Any], place: str, references: Mapping[str, str], inputs: list[Input]
) -> dict[str, Any]:
    rest = {}
    for key, value in params.items():
        role = f"{place}{key}"
        if isinstance(value, Mapping):
            rest[key] = _without_models(value, f"{role}.", references, inputs)
        elif references.get(role) == "model" and value:
            inputs.append(model_input(role, value))
        elif references.get(role) == "autoencoder" and value:
            inputs.append(_autoencoder_input(role, str(value)))
        else:
            rest[key] = value
    return rest


def identify_autoencoder(source: str | Path) -> str:
    """The sha256 that tells an autoencoder from every other."""
    place = autoencoder_place(source)
    if place.is_file():
        return fingerprint_files([place])
    return fingerprint_files([place / "config.json", *folder_weights(place).files])


def _autoencoder_input(role: str, source: str) -> Input:
    name = resolve(source, "autoencoder").name
    return Input(role=role, name=name, source=source, fingerprint=identify_autoencoder(source))
