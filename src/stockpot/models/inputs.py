"""Models and datasets as inputs of a record: what was read, told by its content."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from stockpot.checkpoints.record import Input
from stockpot.datasets.dataset import Dataset
from stockpot.models.classifier import Classifier
from stockpot.models.fingerprint import fingerprint_tensors
from stockpot.models.identity import identify

_MODELS = ("teacher", "model", "baseline")
"""Parameters that name another model."""
_PLAIN = Dataset.__dataclass_fields__["templates"].default


def model_input(
    role: str, source: str | Path | Classifier | Mapping[str, Tensor], name: str = ""
) -> Input:
    """A model as it is now."""
    if isinstance(source, Mapping):
        fingerprint = fingerprint_tensors(source.items())
        return Input(role=role, name=name, source="in memory", fingerprint=fingerprint)
    place = source.origin.source if isinstance(source, Classifier) else str(source)
    return Input(
        role=role,
        name=name or place.rstrip("/").rpartition("/")[2],
        source=place,
        fingerprint=identify(source),
    )


def data_inputs(role: str, data: Dataset) -> list[Input]:
    """A dataset, and its own words for the classes where it has some: heads are made of them."""
    found = [Input(role=role, name=str(data), fingerprint=data.fingerprint)]
    if data.prompts or data.templates != _PLAIN:
        words = repr((data.classes, data.templates, data.prompts))
        fingerprint = hashlib.sha256(words.encode()).hexdigest()
        found.append(Input(role=f"prompts of {role}", name=str(data), fingerprint=fingerprint))
    return found


def named_models(params: Mapping[str, Any]) -> tuple[dict[str, Any], list[Input]]:
    """Parameters without those that name a model, and these models as inputs."""
    inputs: list[Input] = []
    return _without_models(params, "", inputs), inputs


def _without_models(value: Any, role: str, inputs: list[Input]) -> Any:
    if isinstance(value, Mapping):
        rest = {}
        for key, item in value.items():
            place = f"{role}.{key}" if role else str(key)
            if key in _MODELS and item and isinstance(item, str | Path | Classifier):
                inputs.append(model_input(place, item))
            else:
                rest[key] = _without_models(item, place, inputs)
        return rest
    if isinstance(value, list):
        return [_without_models(item, role, inputs) for item in value]
    return value
