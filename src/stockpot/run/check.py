"""Everything about a recipe that can be known before anything is made, with file and line."""

from __future__ import annotations

from functools import partial
from typing import Any

from stockpot.errors import BadParameterError, UserError
from stockpot.recipe import FuseEntry, RecipeFile, TuneEntry
from stockpot.run.plan import build_order, is_saved_by, referred
from stockpot.run.sources import check_data, check_model, check_saved

Place = tuple[str | int, ...]


def check(file: RecipeFile) -> None:
    """Check a recipe against the registries and the disk: names, parameters, paths, references."""
    from stockpot.fuse import fusers
    from stockpot.harden import hardeners
    from stockpot.harden.record import split_params
    from stockpot.measure import measures
    from stockpot.results.sinks import sinks
    from stockpot.season import seasoners

    recipe = file.recipe
    for name, data in recipe.data.items():
        options = {"split": data.split, **data.params}
        _valid(file, ("data", name), partial(check_data, data.dataset), options, "dataset")
    for name, model in recipe.models.items():
        if model.load is not None:
            load = partial(check_model, model.load)
            _valid(file, ("models", name), load, model.options, "load")
        _check_defence(file, ("models", name), model.params.get("defend"))
    for name, run in recipe.harden.items():
        entry = _named(file, ("harden", name, "method"), hardeners, run.method)
        _valid(file, ("harden", name), partial(split_params, run.method), run.params)
        _check_references(file, ("harden", name), entry, run.params)
        _check_defence(file, ("harden", name), run.defend)
    for name, soup in recipe.fuse.items():
        entry = _named(file, ("fuse", name, "method"), fusers, soup.method)
        _valid(file, ("fuse", name), partial(_check_fusion, entry), soup.params)
        _check_members(file, name, soup, entry)
        _check_learning(file, name, soup, entry)
    for name, tuned in recipe.tune.items():
        _check_tuning(file, name, tuned)
    for name, seasoned in recipe.season.items():
        entry = _named(file, ("season", name, "method"), seasoners, seasoned.method)
        _valid(file, ("season", name), entry.validate, seasoned.params)
        _check_references(file, ("season", name), entry, seasoned.params)
        sourced = seasoned.source is not None or seasoned.bn_images == "target"
        if seasoned.bn == "recompute" and not sourced:
            file.fail(
                ("season", name, "bn"),
                "recompute estimates statistics on source images: give `source`.",
            )
    for index, item in enumerate(recipe.measure.with_ if recipe.measure else ()):
        place = ("measure", "with", index)
        entry = _named(file, (*place, "measure"), measures, item.measure)
        _valid(file, place, entry.validate, item.params)
        _check_references(file, place, entry, item.params)
    for name, params in recipe.sinks.items():
        entry = _named(file, ("sinks", name), sinks, name)
        _valid(file, ("sinks", name), entry.validate, params or {})
    _check_scatter(file)
    build_order(file)


def _check_defence(file: RecipeFile, place: Place, wanted: Any) -> None:
    from stockpot.defend.defended import chosen_defences

    try:
        chosen_defences(wanted)
    except UserError as problem:
        file.fail((*place, "defend"), str(problem))


def _check_scatter(file: RecipeFile) -> None:
    """Both axes of a scatter must name datasets that the recipe measures on."""
    report, measure = file.recipe.report, file.recipe.measure
    known = {entry.data for entry in measure.with_} if measure else set()
    several = isinstance((file.raw.get("report") or {}).get("scatter"), list)
    for number, block in enumerate(report.scatter if report else ()):
        first: Place = ("report", "scatter", *((number,) if several else ()))
        for axis, names in (("across", block.across), ("up", block.up)):
            for index, name in enumerate(names):
                if name not in known:
                    listing = ", ".join(sorted(known)) or "nothing"
                    file.fail(
                        (*first, axis, index),
                        f"{name!r} is not measured here. Measured: {listing}.",
                    )


def _check_references(file: RecipeFile, place: Place, entry: Any, params: dict[str, Any]) -> None:
    """A parameter that names a model means one of the recipe, or one that is there."""
    for key, name in referred(file.recipe, entry, params, str(place[-1])).items():
        if name in file.recipe.model_names:
            _check_by_text(file, (*place, key), name)
            continue
        try:
            check_model(name, {})
        except UserError as problem:
            known = ", ".join(file.recipe.model_names)
            file.fail((*place, key), f"{problem} Models of this recipe: {known}.")


def _check_by_text(file: RecipeFile, place: Place, name: str) -> None:
    """A parameter takes a model by its source alone: no option may say which weights it has."""
    given = file.recipe.models.get(name)
    said = [key for key in ("base", "weights", "arguments") if given and key in given.params]
    if said:
        file.fail(
            place,
            f"{name} is loaded with {said[0]}, which cannot be told here: save that model as a "
            "folder and name that.",
        )


def _check_tuning(file: RecipeFile, name: str, tuned: TuneEntry) -> None:
    """Methods, objectives and ranges must be such that a search can begin."""
    from stockpot.fuse import fusers
    from stockpot.tune.objectives import read_objectives
    from stockpot.tune.question import spaces_of

    for method in tuned.methods:
        _named(file, ("tune", name, "method"), fusers, method)
    for model in (*tuned.models, *([tuned.base] if tuned.base else [])):
        _check_by_text(file, ("tune", name), model)
    try:
        read_objectives(tuned.objectives, tuned.measure_params)
        members = dict.fromkeys(tuned.models, "")
        spaces_of(tuned.methods, members, tuned.base, tuned.space, tuned.params)
    except UserError as problem:
        file.fail(("tune", name), str(problem))


def _check_members(file: RecipeFile, name: str, soup: FuseEntry, entry: Any) -> None:
    """A method that starts from a base needs one, and some need a number of members."""
    from stockpot.fuse.finish.then import check_base
    from stockpot.fuse.parameters import check_members

    try:
        check_members(entry, len(soup.models), soup.base is not None)
        check_base(entry, soup.params, soup.base is not None)
    except UserError as problem:
        file.fail(("fuse", name), problem.message)


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
    others = {other: entry.save for other, entry in file.recipe.fuse.items() if other != name}
    if any(is_saved_by(soup.save, other) for other in others.values()):
        file.fail(("fuse", name, "save"), f"another fusion saves to {soup.save!r} too.")
    if soup.load and not any(is_saved_by(soup.load, other) for other in others.values()):
        try:
            check_saved(soup.load)
        except UserError as problem:
            file.fail(("fuse", name, "load"), str(problem))


def _check_fusion(entry: Any, params: dict[str, Any]) -> None:
    from stockpot.fuse.finish.then import check_fusion
    from stockpot.fuse.request import split_options

    check_fusion(entry, split_options(params)[1])


def _named(file: RecipeFile, path: Place, registry: Any, name: str) -> Any:
    try:
        return registry.get(name)
    except UserError as problem:
        file.fail(path, str(problem))


def _valid(
    file: RecipeFile, path: Place, validate: Any, params: dict[str, Any], otherwise: str = ""
) -> None:
    """Complain at the key that is at fault; at `otherwise` where the message names none."""
    try:
        validate(params)
    except UserError as problem:
        told = problem.parameter if isinstance(problem, BadParameterError) else ""
        # What is not there names its option first: `path: no file or folder at ...`.
        told = told or problem.message.partition(":")[0]
        key = told if told in params else otherwise
        file.fail((*path, key) if key else path, str(problem))
