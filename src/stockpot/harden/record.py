"""The record of a training run: what would be made, told without making it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stockpot.checkpoints.record import Record, plain
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.dynamic.oracles.networks import expert_for
from stockpot.dynamic.references import all_references
from stockpot.errors import BadParameterError, did_you_mean
from stockpot.harden import hardeners
from stockpot.harden.loop import train
from stockpot.models.classifier import Classifier
from stockpot.models.inputs import data_inputs, model_input, named_models
from stockpot.registry import Entry, Tags

training = Entry(
    "hardeners",
    "train",
    train,
    Tags(given=("validation", "resume", "report", "question")),
)
"""The loop's own parameters; every method takes them besides its own."""


def hardening_record(
    method: str,
    model: str | Path | Classifier,
    data: str | Path | Dataset,
    *,
    validation: str | Path | Dataset | None = None,
    **params: Any,
) -> Record:
    """The record that `stockpot.harden` with these arguments would write; nothing is trained."""
    own, common = split_params(method, params)
    parameters, teachers = named_models(own | common, all_references(hardeners.get(method), own))
    values = plain(parameters)
    seed = values.pop("seed")
    images = training_data(data)
    inputs = [model_input("model", model), *data_inputs("data", images)]
    if own.get("oracle") == "zero_shot" and not (own["oracle_params"] or {}).get("model"):
        inputs.append(model_input("oracle_params.model", expert_for(images.name)))
    held_out = validation_data(validation)
    if held_out is not None:
        inputs += data_inputs("validation", held_out)
    return Record(
        verb="harden",
        method=method,
        parameters=values,
        seed=seed,
        inputs=[*inputs, *teachers],
    )


def training_data(data: str | Path | Dataset) -> Dataset:
    """A name means the training split."""
    return data if isinstance(data, Dataset) else load_dataset(str(data), split="train")


def validation_data(data: str | Path | Dataset | None) -> Dataset | None:
    """A name means the validation split."""
    return load_dataset(str(data), split="val") if isinstance(data, str | Path) else data


def split_params(method: str, params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The method's own parameters and the loop's, both checked."""
    entry = hardeners.get(method)
    own_names = [parameter.name for parameter in entry.parameters]
    loop_names = [parameter.name for parameter in training.parameters]
    for name in params:
        if name not in own_names and name not in loop_names:
            near = did_you_mean(name, own_names + loop_names)
            raise BadParameterError(
                f"{method}: unknown parameter {name!r}.{near} "
                f"It takes: {', '.join(own_names + loop_names)}."
            )
    own = entry.validate({k: v for k, v in params.items() if k in own_names})
    common = training.validate({k: v for k, v in params.items() if k in loop_names})
    return own, common
