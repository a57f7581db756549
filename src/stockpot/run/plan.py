"""What a recipe asks for: models in the order of their making, and what is measured of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stockpot.checkpoints.open import open_checkpoint
from stockpot.errors import UserError
from stockpot.fuse.learning.learner import learned_files
from stockpot.harden import hardeners
from stockpot.measure import measures
from stockpot.measure.cells import Cell, DataSpec, ModelSpec
from stockpot.measure.mce import NAMED_BASELINES
from stockpot.measure.specs import task_specs
from stockpot.recipe import MeasureEntry, Recipe, RecipeFile
from stockpot.registry import Entry


def build_order(file: RecipeFile) -> list[str]:
    """Models that are made by the recipe, each after those it is made from."""
    recipe = file.recipe
    made_from = parents(recipe)
    order: list[str] = []
    open_names: list[str] = []

    def visit(name: str) -> None:
        if name in order or name not in made_from:
            return
        if name in open_names:
            circle = " -> ".join([*open_names[open_names.index(name) :], name])
            section = next(
                t for t in ("harden", "fuse", "season", "tune") if name in getattr(recipe, t)
            )
            file.fail((section, name), f"is made from itself: {circle}.")
        open_names.append(name)
        for parent in made_from[name]:
            visit(parent)
        open_names.pop()
        order.append(name)

    for name in made_from:
        visit(name)
    return order


def parents(recipe: Recipe) -> dict[str, list[str]]:
    """For every model that the recipe makes, the models it is made from."""
    made: dict[str, list[str]] = {name: [] for name, m in recipe.models.items() if m.new}
    for name, run in recipe.harden.items():
        named = referred(recipe, hardeners.get(run.method), run.params, name).values()
        made[name] = [run.model, *(other for other in named if other in recipe.model_names)]
    for name, soup in recipe.fuse.items():
        # What one fusion learned and saved, another may load.
        learned = [n for n, other in recipe.fuse.items() if is_saved_by(soup.load, other.save)]
        made[name] = [*soup.models, *([soup.base] if soup.base else []), *learned]
    made |= {name: list(seasoned.models) for name, seasoned in recipe.season.items()}
    for name, tuned in recipe.tune.items():
        made[name] = [*tuned.models, *([tuned.base] if tuned.base else [])]
    return made


def is_saved_by(load: str | None, save: str | None) -> bool:
    """Whether one fusion reads what another writes, with or without the end of its name."""
    return bool(load and save) and learned_files(str(load)) == learned_files(str(save))


def waves(names: list[str], made_from: dict[str, list[str]]) -> list[list[str]]:
    """Names in groups; each group needs only what is there already or in groups before it."""
    left, groups = list(names), []
    while left:
        ready = [name for name in left if not set(made_from[name]) & set(left)]
        groups.append(ready)
        left = [name for name in left if name not in ready]
    return groups


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
        return ModelSpec(name, entry.load, entry.options)
    return ModelSpec(name, str(folder / "models" / name), {}, recipe.variant(name))


def checkpoint(recipe: Recipe, name: str, folder: Path) -> Any:
    """Where the weights of a model of the recipe lie, or an adapter over the base that it names."""
    base, source = model_spec(recipe, name, folder).options.get("base"), _text(recipe, name, folder)
    return open_checkpoint(source, base=open_checkpoint(base)) if base else source


def _text(recipe: Recipe, name: str, folder: Path) -> str:
    spec = model_spec(recipe, name, folder)
    revision = spec.options.get("revision")
    return f"{spec.source}@{revision}" if revision else str(spec.source)


def referred(
    recipe: Recipe, entry: Entry[Any], params: Mapping[str, Any], beside: str
) -> dict[str, str]:
    """Those parameters of a method that name a model, and which model they mean to `beside`."""
    return {
        key: recipe.model_meant(name, beside)
        for key, name in entry.referred(params, "model").items()
        if name not in NAMED_BASELINES
    }


def located(
    recipe: Recipe, entry: Entry[Any], params: dict[str, Any], beside: str, folder: Path
) -> dict[str, Any]:
    """Parameters in which models of the recipe are named by the place where they lie."""
    return params | {
        key: _text(recipe, name, folder)
        for key, name in referred(recipe, entry, params, beside).items()
        if name in recipe.model_names
    }


def measured(recipe: Recipe) -> list[tuple[str, MeasureEntry]]:
    """Every (model, measure) pair, models first, in the order of the recipe."""
    if recipe.measure is None:
        return []
    chosen = recipe.measure.models or recipe.model_names
    return [
        (model, entry)
        for model in recipe.model_names
        for entry in recipe.measure.with_
        if model in (entry.models or chosen)
    ]


def cells_of(recipe: Recipe, folder: Path, index: str = "") -> list[Cell]:
    """What a recipe measures, cell by cell; models may still have to be made.

    Args:
        recipe: the recipe.
        folder: of the run.
        index: an index of results that is told of each.
    """
    return [
        Cell(
            model=model_spec(recipe, model, folder),
            measure=entry.measure,
            data=data,
            params=_checked(recipe, entry, model, folder),
            seed=recipe.seed,
            store=str(folder / "results"),
            device=recipe.device,
            batch_size=recipe.batch_size,
            unseen=entry.unseen,
            precision=recipe.precision,
            compile=recipe.compile,
            shards=entry.shards,
            samples=recipe.measure is not None and recipe.measure.log_samples,
            index=index,
        )
        for model, entry in measured(recipe)
        for data in data_specs(recipe, entry.data)
    ]


def _checked(recipe: Recipe, entry: MeasureEntry, model: str, folder: Path) -> dict[str, Any]:
    method = measures.get(entry.measure)
    return method.validate(located(recipe, method, entry.params, model, folder))
