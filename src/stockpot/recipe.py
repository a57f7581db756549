"""The YAML of one run: one file, no includes, no interpolation, unknown keys are errors.

    version: 1
    data:    {test: {dataset: icons, split: test}}
    models:  {resnet: {load: icons-resnet}}
    harden:  {tough: {method: nominal, model: resnet, data: train, epochs: 5}}
    fuse:    {soup: {method: average, models: [resnet, tough]}}
    measure: {models: [resnet, soup], with: [{measure: clean, data: test}]}
    report:  {title: A soup}

Every complaint names the line it is about.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from stockpot.errors import UserError, did_you_mean
from stockpot.seeds import name_of, spread


class RecipeError(UserError):
    """A recipe that cannot be followed; the message starts with file and line."""


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class _WithParams(BaseModel):
    """Keys that are not listed are parameters of the method, checked against its signature."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)

    @property
    def params(self) -> dict[str, Any]:
        """The keys beyond the listed ones."""
        return dict(self.model_extra or {})


class DataEntry(_WithParams):
    """A dataset: its registered name (or a path) and its options."""

    dataset: str
    split: str = "test"
    limit: int | None = Field(None, ge=1)


class ModelEntry(_WithParams):
    """A model that exists (`load`), or a new one of a transformers architecture (`new`)."""

    load: str | None = None
    new: str | None = None
    data: str | None = Field(None, description="Where a new model's classes come from.")
    size: int = Field(64, ge=8, description="The input side of a new model.")
    seed: int = 0

    @model_validator(mode="after")
    def _one_origin(self) -> ModelEntry:
        if (self.load is None) == (self.new is None):
            raise ValueError("expected exactly one of `load` and `new`")
        if self.new is not None and self.data is None:
            raise ValueError("a new model needs `data` for its classes")
        return self


class HardenEntry(_WithParams):
    """A training run."""

    method: str
    model: str
    data: str
    validation: str | None = None


class FuseEntry(_WithParams):
    """A fusion of several models."""

    method: str
    models: list[str] = Field(min_length=1)
    base: str | None = None
    data: list[str] | str | None = Field(
        None, description="For data-driven methods: one dataset per model, or one for all."
    )
    save: str | None = Field(None, description="Where to write what the method learned.")
    load: str | None = Field(None, description="What the method learned before.")

    @property
    def datasets(self) -> list[str]:
        """The names of the datasets, in order."""
        return [self.data] if isinstance(self.data, str) else list(self.data or ())


class MeasureEntry(_WithParams):
    """One measure on one dataset."""

    measure: str
    data: str
    models: list[str] | None = Field(None, description="All models of the block when left out.")


class MeasureBlock(_Closed):
    """Which models are measured, and how."""

    models: list[str] | None = Field(None, description="Every model of the recipe when left out.")
    with_: list[MeasureEntry] = Field(alias="with", min_length=1)


class ScatterBlock(_Closed):
    """Two groups of datasets whose mean accuracies are drawn against each other."""

    across: list[str] = Field(min_length=1)
    up: list[str] = Field(min_length=1)


class ReportBlock(_Closed):
    """The page at the end."""

    title: str = "Stockpot report"
    out: str = "report.html"
    subtitle: str = ""
    scatter: ScatterBlock | None = None


class Recipe(_Closed):
    """A whole run."""

    version: Literal[1]
    seed: int = 0
    device: str = "auto"
    batch_size: int = Field(256, ge=1)
    data: dict[str, DataEntry] = Field(default_factory=dict)
    models: dict[str, ModelEntry] = Field(default_factory=dict)
    harden: dict[str, HardenEntry] = Field(default_factory=dict)
    fuse: dict[str, FuseEntry] = Field(default_factory=dict)
    measure: MeasureBlock | None = None
    report: ReportBlock | None = None

    @property
    def model_names(self) -> list[str]:
        """Every model of the recipe: given, hardened or fused."""
        return [*self.models, *self.harden, *self.fuse]


class RecipeFile:
    """A recipe with the place of each key, so that a complaint can name its line."""

    def __init__(self, text: str, name: str, overrides: Sequence[str] = ()) -> None:
        self.name = name
        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
            raw = yaml.safe_load(text)
        except yaml.MarkedYAMLError as problem:
            line = problem.problem_mark.line + 1 if problem.problem_mark else 1
            raise RecipeError(f"{name}:{line}: not YAML: {problem.problem}.") from problem
        if not isinstance(raw, dict):
            raise RecipeError(f"{name}:1: expected a mapping with version, data, models, ...")
        self._node = node
        for override in overrides:
            _apply(raw, override)
        self.raw: dict[str, Any] = raw
        try:
            self.recipe = Recipe.model_validate(spread(raw))
        except ValidationError as problem:
            self._complain(problem)
        self._check_references()

    def fail(self, path: Sequence[str | int], message: str) -> NoReturn:
        """Raise a complaint about the value at a path of keys."""
        where = ".".join(str(part) for part in path)
        raise RecipeError(f"{self.name}:{self.line(path)}: {where}: {message}")

    def line(self, path: Sequence[str | int]) -> int:
        """The line of the key at a path, or of its nearest parent that stands in the file."""
        node, line = self._node, 1
        for part in path:
            if isinstance(node, yaml.MappingNode):
                for key, value in node.value:
                    if key.value in (str(part), name_of(str(part))):
                        node, line = value, key.start_mark.line + 1
                        break
                else:
                    return line
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
                if part >= len(node.value):
                    return line
                node = node.value[part]
                line = node.start_mark.line + 1
            else:
                return line
        return line

    def _complain(self, problem: ValidationError) -> NoReturn:
        error = problem.errors()[0]
        path = tuple(part for part in error["loc"] if isinstance(part, str | int))
        if error["type"] == "extra_forbidden":
            known = _fields_at(Recipe, path[:-1])
            near = did_you_mean(str(path[-1]), known)
            self.fail(path, f"unknown key.{near} Known: {', '.join(known)}.")
        message = error["msg"].removeprefix("Value error, ")
        given = (
            f", got {error['input']!r}" if error["type"] not in ("missing", "value_error") else ""
        )
        self.fail(path, f"{message[0].lower()}{message[1:]}{given}.")

    def _check_references(self) -> None:
        recipe = self.recipe
        seen: set[str] = set()
        for title in ("models", "harden", "fuse"):
            for name in getattr(recipe, title):
                if name in seen:
                    self.fail((title, name), "this name is used twice.")
                seen.add(name)
        for path, kind, name in _references(recipe):
            known = list(recipe.data) if kind == "data" else recipe.model_names
            if name not in known:
                near = did_you_mean(name, known)
                listing = ", ".join(known) or "none"
                self.fail(path, f"no {kind} named {name!r} here.{near} Known: {listing}.")


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> RecipeFile:
    """Read a recipe file and apply `a.b=c` overrides."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        folder = file.parent if file.parent.is_dir() else Path()
        near = did_you_mean(file.name, [found.name for found in folder.glob("*.yaml")])
        raise RecipeError(f"no recipe at {path}.{near}") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise RecipeError(f"{path} cannot be read: {problem}.") from problem
    return RecipeFile(text, str(path), overrides)


def _apply(raw: dict[str, Any], override: str) -> None:
    keys, equals, value = override.partition("=")
    if not equals or not keys:
        raise RecipeError(f"--set {override}: expected KEY=VALUE, such as seed=1.")
    *parents, last = keys.split(".")
    place: Any = raw
    for key in parents:
        if isinstance(place, list) and key.isdigit() and int(key) < len(place):
            place = place[int(key)]
        elif isinstance(place, dict):
            place = place.setdefault(key, {})
        else:
            raise RecipeError(f"--set {override}: {key!r} is not a place in the recipe.")
    parsed = yaml.safe_load(value)
    if isinstance(place, list) and last.isdigit() and int(last) < len(place):
        place[int(last)] = parsed
    elif isinstance(place, dict):
        place[last] = parsed
    else:
        raise RecipeError(f"--set {override}: {last!r} is not a place in the recipe.")


def _fields_at(model: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """The keys that may stand at a place of the recipe."""
    inner: dict[str, type[BaseModel]] = {"measure": MeasureBlock, "report": ReportBlock}
    if path and path[0] in inner:
        model = inner[str(path[0])]
    return [field.alias or name for name, field in model.model_fields.items()]


def _references(recipe: Recipe) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    """Every place that names a model or a dataset: (path, kind, name)."""
    for name, model in recipe.models.items():
        if model.data is not None:
            yield ("models", name, "data"), "data", model.data
    for name, run in recipe.harden.items():
        yield ("harden", name, "model"), "model", run.model
        yield ("harden", name, "data"), "data", run.data
        if run.validation is not None:
            yield ("harden", name, "validation"), "data", run.validation
    for name, soup in recipe.fuse.items():
        for index, member in enumerate(soup.models):
            yield ("fuse", name, "models", index), "model", member
        if soup.base is not None:
            yield ("fuse", name, "base"), "model", soup.base
        for index, data in enumerate(soup.datasets):
            place = ("fuse", name, "data", index)
            yield place[:3] if isinstance(soup.data, str) else place, "data", data
    if recipe.measure is None:
        return
    for index, chosen in enumerate(recipe.measure.models or ()):
        yield ("measure", "models", index), "model", chosen
    for index, entry in enumerate(recipe.measure.with_):
        yield ("measure", "with", index, "data"), "data", entry.data
        for position, chosen in enumerate(entry.models or ()):
            yield ("measure", "with", index, "models", position), "model", chosen


def json_schema(parameters: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """The JSON Schema of a recipe, for editors; `parameters` adds each method's own keys."""
    schema = Recipe.model_json_schema(by_alias=True)
    definitions = schema["$defs"]
    for title, key in (
        ("HardenEntry", "method"),
        ("FuseEntry", "method"),
        ("MeasureEntry", "measure"),
    ):
        known = (parameters or {}).get(title, {})
        if known:
            definitions[title]["properties"][key]["enum"] = sorted(known)
            definitions[title]["allOf"] = [
                {
                    "if": {"properties": {key: {"const": name}}},
                    "then": {"properties": properties},
                }
                for name, properties in sorted(known.items())
            ]
    return schema
