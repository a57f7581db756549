"""What a training is asked for: its parameters, its data, its defence, and the record of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stockpot.checkpoints.record import Record, plain
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.defend.defended import Wanted, adapting, chosen_defences
from stockpot.defend.wrapped import Wrapped
from stockpot.dynamic.oracles.networks import expert_for
from stockpot.dynamic.references import all_references
from stockpot.errors import BadParameterError, did_you_mean
from stockpot.harden import hardeners
from stockpot.harden.augment import edition_of
from stockpot.harden.loop import train
from stockpot.harden.trained_on import held_corruptions, recorded, trained_on
from stockpot.models.classifier import Classifier
from stockpot.models.inputs import data_inputs, mask_inputs, model_input, named_models
from stockpot.registry import Entry, Tags

training = Entry(
    "hardeners",
    "train",
    train,
    Tags(given=("validation", "resume", "report", "progress", "question")),
)
"""The loop's own parameters; every method takes them besides its own."""


_NEWER = ("decay_norms", "betas", "milestones", "gamma", "drop_path", "compute")
"""Options that earlier records do not have. At their defaults they stay out, so that a model made
before they were there is known again."""


def hardening_record(
    method: str,
    model: str | Path | Classifier,
    data: str | Path | Dataset,
    *,
    validation: str | Path | Dataset | None = None,
    defend: Wanted = None,
    **params: Any,
) -> Record:
    """The record that `stockpot.harden` with these arguments would write; nothing is trained."""
    own, common = split_params(method, params)
    defence = training_defence(model, defend)
    parameters, teachers = named_models(own | common, all_references(hardeners.get(method), own))
    values = plain(parameters)
    seed = values.pop("seed")
    usual = plain({each.name: each.default for each in training.parameters})
    for name in _NEWER:
        if values[name] == usual[name]:
            del values[name]
    if defence:
        values["defend"] = plain(defence)
    images = training_data(data)
    inputs = [model_input("model", model), *data_inputs("data", images)]
    if values.get("objects") == "relevance":
        del values["objects"]  # records that are older do not say it
    elif values.get("objects") == "truth":
        inputs += mask_inputs("data", images)
    if own.get("oracle") == "zero_shot" and not (own["oracle_params"] or {}).get("model"):
        inputs.append(model_input("oracle_params.model", expert_for(images.name)))
    for name, source in hardeners.get(method).referred(own, "data").items():
        inputs += data_inputs(name, training_data(source))
    held_out = validation_data(validation)
    if held_out is not None:
        inputs += data_inputs("validation", held_out)
    return Record(
        verb="harden",
        method=method,
        parameters=values,
        seed=seed,
        edition=edition_of(values.get("augmentations", ())),
        inputs=[*inputs, *teachers],
        trained_on=trained_on(model) | held_corruptions(method, values),
    )


def training_defence(model: str | Path | Classifier, wanted: Wanted) -> dict[str, dict[str, Any]]:
    """The defence behind which a model is trained: the one asked for, or the one it has."""
    if isinstance(model, Wrapped):
        raise BadParameterError(
            f"{model.origin.source}: expected a model without a defence to train.",
            hint="Give the model itself, and the defence as defend=.",
        )
    if wanted is None:
        made = recorded(model)
        wanted = made.parameters.get("defend") if made and made.verb == "harden" else None
    chosen = chosen_defences(wanted)
    if adapter := adapting(chosen):
        raise BadParameterError(
            f"defend: {adapter} changes the model by what it is asked, which training does itself.",
            hint="Train without it, and give it when measuring a stream.",
        )
    if "ten_crop" in chosen:
        raise BadParameterError(
            "defend: ten_crop averages over views of one picture, which a training step cannot.",
            hint="Train without it, and give it when measuring.",
        )
    return chosen


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
