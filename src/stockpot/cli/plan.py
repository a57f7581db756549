"""A recipe as work: which models must be made, in which order, and which cells are measured."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from stockpot.errors import BadParameterError, UserError
from stockpot.recipe import FuseEntry, MeasureEntry, Recipe, RecipeFile


def check(file: RecipeFile) -> None:
    """Check methods, measures, datasets and their parameters against the registries."""
    from stockpot.datasets import datasets
    from stockpot.datasets.tasks.sets import expanded
    from stockpot.fuse import fusers
    from stockpot.harden import hardeners
    from stockpot.harden.record import split_params
    from stockpot.measure import measures
    from stockpot.season import seasoners

    recipe = file.recipe
    for name, data in recipe.data.items():
        if data.dataset not in datasets and Path(data.dataset).exists():
            continue
        for task in expanded(data.dataset):
            options = {**data.params, "split": data.split}
            entry = _named(file, ("data", name, "dataset"), datasets, task)
            if "split" not in {parameter.name for parameter in entry.parameters}:
                options.pop("split")
            _valid(file, ("data", name), entry.validate, options)
    for name, run in recipe.harden.items():
        _named(file, ("harden", name, "method"), hardeners, run.method)
        _valid(file, ("harden", name), partial(split_params, run.method), run.params)
    for name, soup in recipe.fuse.items():
        entry = _named(file, ("fuse", name, "method"), fusers, soup.method)
        _valid(file, ("fuse", name), partial(_check_fusion, entry), soup.params)
        _check_learning(file, name, soup, entry)
    for name, seasoned in recipe.season.items():
        entry = _named(file, ("season", name, "method"), seasoners, seasoned.method)
        _valid(file, ("season", name), entry.validate, seasoned.params)
    for index, item in enumerate(recipe.measure.with_ if recipe.measure else ()):
        place = ("measure", "with", index)
        entry = _named(file, (*place, "measure"), measures, item.measure)
        _valid(file, place, entry.validate, item.params)
    _check_scatter(file)
    build_order(file)


def _check_scatter(file: RecipeFile) -> None:
    """Both axes of a scatter must name datasets that the recipe measures on."""
    report, measure = file.recipe.report, file.recipe.measure
    known = {entry.data for entry in measure.with_} if measure else set()
    several = isinstance((file.raw.get("report") or {}).get("scatter"), list)
    for number, block in enumerate(report.scatter if report else ()):
        first: tuple[str | int, ...] = ("report", "scatter", *((number,) if several else ()))
        for axis, names in (("across", block.across), ("up", block.up)):
            for index, name in enumerate(names):
                if name not in known:
                    listing = ", ".join(sorted(known)) or "nothing"
                    file.fail(
                        (*first, axis, index),
                        f"{name!r} is not measured here. Measured: {listing}.",
                    )


def _check_learning(file: RecipeFile, name: str, soup: FuseEntry, entry: Any) -> None:
    """Data belongs to methods that learn, and those cannot do without unless they load."""
    learns = entry.tags.learns
    anew = soup.params.get("bn") == "recompute"
    if anew and soup.data is None:
        file.fail(("fuse", name), "bn: recompute estimates statistics from images: give `data`.")
    for key in ("data", "save", "load"):
        if getattr(soup, key) is not None and not learns and not (key == "data" and anew):
            file.fail(("fuse", name, key), f"{soup.method} does not learn from data.")
    listed = learns and isinstance(soup.data, list) and entry.tags.each
    if listed and len(soup.datasets) != len(soup.models):
        file.fail(
            ("fuse", name, "data"),
            f"expected one dataset per model ({len(soup.models)}), got {len(soup.datasets)}.",
        )
    if entry.tags.needs_data and not soup.data and not soup.load:
        file.fail(("fuse", name), f"{soup.method} learns from data: give `data` (or `load`).")


def _check_fusion(entry: Any, params: dict[str, Any]) -> None:
    from stockpot.fuse.parameters import check_parameters
    from stockpot.fuse.request import split_options

    check_parameters(entry, split_options(params)[1])


def _named(file: RecipeFile, path: tuple[str | int, ...], registry: Any, name: str) -> Any:
    try:
        return registry.get(name)
    except UserError as problem:
        file.fail(path, str(problem))


def _valid(
    file: RecipeFile, path: tuple[str | int, ...], validate: Any, params: dict[str, Any]
) -> None:
    try:
        validate(params)
    except UserError as problem:
        key = problem.parameter if isinstance(problem, BadParameterError) else ""
        file.fail((*path, key) if key in params else path, str(problem))


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
            section = next(t for t in ("harden", "fuse", "season") if name in getattr(recipe, t))
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
    from stockpot.harden import hardeners

    made: dict[str, list[str]] = {name: [] for name, m in recipe.models.items() if m.new}
    for name, run in recipe.harden.items():
        entry = hardeners.get(run.method)
        named = [
            recipe.model_meant(other, name)
            for other in entry.referred(run.params, "model").values()
        ]
        made[name] = [run.model, *(other for other in named if other in recipe.model_names)]
    for name, soup in recipe.fuse.items():
        made[name] = [*soup.models, *([soup.base] if soup.base else [])]
    made |= {name: list(seasoned.models) for name, seasoned in recipe.season.items()}
    return made


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
