"""What a model of a recipe is made with: the arguments of the call that makes it.

Making a model and asking whether it is there already start from the same arguments, so that the
question cannot differ from what would be done.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from stockpot.datasets.dataset import Dataset
from stockpot.fuse import fusers
from stockpot.fuse.finish.then import THEN
from stockpot.harden import hardeners
from stockpot.measure.cells import undefended
from stockpot.models.classifier import Classifier
from stockpot.models.load import load_for
from stockpot.recipe import FuseEntry, Recipe
from stockpot.run.plan import checkpoint, data_spec, located, model_spec

Verb = Literal["new", "harden", "fuse", "season", "tune"]


@dataclass(frozen=True)
class Order:
    """One call: what to do, how, and with what."""

    verb: Verb
    method: str
    inputs: tuple[Any, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    """Whatever decides the outcome; where it is made and who watches is not among it."""


def order_of(recipe: Recipe, name: str, folder: Path) -> Order:
    """How the recipe makes a model; its datasets are loaded, its parents only named."""
    if name in recipe.models:
        return _new(recipe, name)
    if name in recipe.harden:
        return _harden(recipe, name, folder)
    if name in recipe.season:
        return _season(recipe, name, folder)
    if name in recipe.tune:
        return _tune(recipe, name, folder)
    return _fuse(recipe, name, folder)


def _new(recipe: Recipe, name: str) -> Order:
    entry = recipe.models[name]
    settings = {"size": entry.size, "seed": entry.seed, **entry.params}
    return Order("new", str(entry.new), (_load(recipe, entry.data),), settings)


def _harden(recipe: Recipe, name: str, folder: Path) -> Order:
    entry = recipe.harden[name]
    parent = recipe.models.get(entry.model)
    given = parent.params.get("defend") if parent else None
    defend = entry.defend if entry.defend is not None else given
    data = data_spec(recipe, entry.data).load()
    return Order(
        "harden",
        entry.method,
        (_start(recipe, entry.model, folder, data), data),
        {
            "validation": _load(recipe, entry.validation),
            "defend": defend,
            "seed": recipe.seed,
            **located(recipe, hardeners.get(entry.method), entry.params, name, folder),
        },
    )


def _fuse(recipe: Recipe, name: str, folder: Path) -> Order:
    entry = recipe.fuse[name]
    return Order(
        "fuse",
        entry.method,
        ({member: checkpoint(recipe, member, folder) for member in entry.models},),
        {
            "base": checkpoint(recipe, entry.base, folder) if entry.base else None,
            **_learning(recipe, entry),
        },
    )


def _learning(recipe: Recipe, entry: FuseEntry) -> dict[str, Any]:
    """The settings of a fusion: the run's seed where it draws, and its data where it learns.

    One that does not learn gets the run's device where that can make it faster.
    """
    method = fusers.get(entry.method)
    learns = method.tags.learns
    draws = any(parameter.name == "seed" for parameter in method.parameters)
    # A method that draws without data keeps its own default under a run's default, which is 0.
    found: dict[str, Any] = {"seed": recipe.seed} if draws and (learns or recipe.seed) else {}
    if not learns and entry.params.get("bn") != "recompute":
        heavy = method.tags.heavy or THEN in entry.params
        found |= {"device": recipe.device} if heavy else {}
        return found | entry.params
    found["device"] = recipe.device
    if learns:
        found |= {"save": entry.save, "load": entry.load}
    data = [_load(recipe, item) for item in entry.datasets]
    found["tasks"] = (data[0] if isinstance(entry.data, str) else data) if data else None
    return {**found, **entry.params}


def _season(recipe: Recipe, name: str, folder: Path) -> Order:
    entry = recipe.season[name]
    data = data_spec(recipe, entry.data).load()
    members = {member: _start(recipe, member, folder, data) for member in entry.models}
    return Order(
        "season",
        entry.method,
        (members, data),
        {
            "source": _load(recipe, entry.source),
            "shots": entry.shots,
            "seed": recipe.seed,
            # Which images are met together changes what is learned, so no device decides it.
            "batch_size": 256 if recipe.batch_size == "auto" else recipe.batch_size,
            **entry.options,
            **entry.params,
        },
    )


def _tune(recipe: Recipe, name: str, folder: Path) -> Order:
    entry = recipe.tune[name]
    sets = {key: [_load(recipe, one) for one in names] for key, names in entry.sets.items()}
    return Order(
        "tune",
        ",".join(entry.methods),
        ({member: checkpoint(recipe, member, folder) for member in entry.models}, sets["data"]),
        {
            "base": checkpoint(recipe, entry.base, folder) if entry.base else None,
            "unseen": sets["unseen"],
            # Without a test of its own it is tested by what the recipe measures.
            **({"test": sets["test"]} if sets["test"] else {"test_split": None}),
            "objectives": entry.objectives,
            "space": entry.space,
            "trials": entry.trials,
            "sampler": entry.sampler,
            "points": entry.points,
            "prune": entry.prune,
            "prefer": entry.prefer,
            "measure_params": entry.measure_params,
            "seed": recipe.seed,
            **entry.params,
        },
    )


def _start(recipe: Recipe, name: str, folder: Path, data: Dataset) -> str | Classifier:
    """A model that is trained or seasoned: its place, or itself where it has options to load."""
    spec = model_spec(recipe, name, folder)
    own = undefended(spec.options)
    return load_for(spec.source, data, options=own, prompts=data.prompts) if own else spec.source


def _load(recipe: Recipe, name: str | None) -> Dataset | None:
    return None if name is None else data_spec(recipe, name).load()
