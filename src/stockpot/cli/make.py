"""Carrying out the parts of a recipe that make models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stockpot.cli.console import ImageProgress, err
from stockpot.errors import UserError
from stockpot.measure.cells import DataSpec, ModelSpec
from stockpot.measure.run import task_specs
from stockpot.recipe import FuseEntry, Recipe
from stockpot.registry import Entry


def data_spec(recipe: Recipe, name: str) -> DataSpec:
    """A dataset of the recipe."""
    specs = data_specs(recipe, name)
    if len(specs) > 1:
        raise UserError(f"{name} is a set of {len(specs)} tasks, and one dataset is wanted here.")
    return specs[0]


def data_specs(recipe: Recipe, name: str) -> list[DataSpec]:
    """The datasets that a name of the recipe stands for: one, or those of a set of tasks."""
    entry = recipe.data[name]
    options = {"split": entry.split, "limit": entry.limit, **entry.params}
    return task_specs(name, entry.dataset, options)


def model_spec(recipe: Recipe, name: str, folder: Path) -> ModelSpec:
    """A model of the recipe: where it is, or where it will have been made."""
    entry = recipe.models.get(name)
    if entry is not None and entry.load is not None:
        return ModelSpec(name, entry.load, entry.params)
    return ModelSpec(name, str(folder / "models" / name), {}, recipe.variant(name))


def make_model(recipe: Recipe, name: str, folder: Path) -> None:
    """Make one model from its parents and save it under `models/`."""
    out = folder / "models" / name
    if name in recipe.models:
        _new(recipe, name, out)
    elif name in recipe.harden:
        _harden(recipe, name, folder, out)
    elif name in recipe.season:
        _season(recipe, name, folder, out)
    else:
        _fuse(recipe, name, folder, out)


def _new(recipe: Recipe, name: str, out: Path) -> None:
    from stockpot.models.new import new_model

    entry = recipe.models[name]
    if entry.new is None or entry.data is None:
        raise UserError(f"{name} is not a new model.")
    data = data_spec(recipe, entry.data).load()
    count = new_model(entry.new, data, out, size=entry.size, seed=entry.seed, **entry.params)
    err.print(f"{name}: a new {entry.new} with {count:,} parameters")


def _harden(recipe: Recipe, name: str, folder: Path, out: Path) -> None:
    from stockpot.harden import hardeners
    from stockpot.harden.run import harden
    from stockpot.models.device import pick_device

    entry = recipe.harden[name]
    method = hardeners.get(entry.method)
    spec = model_spec(recipe, entry.model, folder)
    with ImageProgress() as bar:

        def report(step: int, total: int, seen: dict[str, float]) -> None:
            bar(f"{name}: {_numbers(seen)}", step, total)

        model = harden(
            entry.method,
            spec.source,
            data_spec(recipe, entry.data).load(),
            validation=data_spec(recipe, entry.validation).load() if entry.validation else None,
            out=out,
            device=str(pick_device(recipe.device)),
            report=report,
            **{"seed": recipe.seed, **located(recipe, method, entry.params, folder, name)},
        )
    err.print(f"{name}: {entry.method} from {entry.model}, {model.parameter_count:,} parameters")


def located(
    recipe: Recipe, entry: Entry[Any], params: dict[str, Any], folder: Path, asking: str
) -> dict[str, Any]:
    """Parameters that name a model of the recipe, such as a teacher, say where it lies.

    `asking` is the model that is made or measured: run n of it means run n of the one it names.
    """
    named = {
        key: recipe.model_meant(name, asking)
        for key, name in entry.referred(params, "model").items()
    }
    return params | {
        key: str(model_spec(recipe, name, folder).source)
        for key, name in named.items()
        if name in recipe.model_names
    }


def _fuse(recipe: Recipe, name: str, folder: Path, out: Path) -> None:
    from stockpot.fuse.run import fuse

    entry = recipe.fuse[name]
    with ImageProgress() as bar:
        fuse(
            entry.method,
            {member: checkpoint(recipe, member, folder) for member in entry.models},
            base=checkpoint(recipe, entry.base, folder) if entry.base else None,
            out=out,
            progress=lambda what, done, total: bar(f"{name}: {what}", done, total),
            **_learning(recipe, entry),
        )
    err.print(f"{name}: {entry.method} of {', '.join(entry.models)}")


def _learning(recipe: Recipe, entry: FuseEntry) -> dict[str, Any]:
    """The settings of a fusion; one that learns gets its data, the run's device and its seed."""
    from stockpot.fuse import fusers

    method = fusers.get(entry.method)
    learns = method.tags.learns
    if not learns and entry.params.get("bn") != "recompute":
        return entry.params
    found: dict[str, Any] = {"device": recipe.device}
    if learns:
        found |= {"save": entry.save, "load": entry.load}
    if learns and any(parameter.name == "seed" for parameter in method.parameters):
        found["seed"] = recipe.seed
    data = [data_spec(recipe, item).load() for item in entry.datasets]
    found["tasks"] = (data[0] if isinstance(entry.data, str) else data) if data else None
    return {**found, **entry.params}


def _season(recipe: Recipe, name: str, folder: Path, out: Path) -> None:
    from stockpot.season.run import season

    entry = recipe.season[name]
    chosen = season(
        entry.method,
        {member: model_spec(recipe, member, folder).source for member in entry.models},
        data_spec(recipe, entry.data).load(),
        source=data_spec(recipe, entry.source).load() if entry.source else None,
        out=out,
        shots=entry.shots,
        seed=recipe.seed,
        device=recipe.device,
        batch_size=recipe.batch_size,
        **entry.params,
    )
    parts = zip(chosen.members, chosen.weights, strict=True)
    err.print(f"{name}: {entry.method} gives " + ", ".join(f"{m} {w:.2f}" for m, w in parts))


def checkpoint(recipe: Recipe, name: str, folder: Path) -> str:
    """Where the weights of a model of the recipe lie."""
    return str(model_spec(recipe, name, folder).source)


def _numbers(seen: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value:.4f}" for key, value in seen.items())
