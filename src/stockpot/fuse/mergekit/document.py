"""What a mergekit recipe says: models, slices of layers and their parameters, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stockpot.errors import BadParameterError
from stockpot.fuse.mergekit.settings import Settings


@dataclass(frozen=True)
class Reference:
    """A model as mergekit names it: a place, perhaps a revision, perhaps an adapter on top."""

    path: str
    revision: str | None = None
    lora: Reference | None = None

    def __str__(self) -> str:
        own = f"{self.path}@{self.revision}" if self.revision else self.path
        return f"{own}+{self.lora}" if self.lora else own

    @property
    def name(self) -> str:
        """Its last part, for labels."""
        return str(self).rstrip("/").rpartition("/")[2]


@dataclass(frozen=True)
class Input:
    """A model in a slice: the layers from `first` on (all of them when it is None)."""

    model: Reference
    first: int | None
    layers: int | None
    own: Settings


@dataclass(frozen=True)
class Slice:
    """Layers of the output and what they are merged from."""

    inputs: tuple[Input, ...]
    own: Settings
    base: Reference | None


@dataclass(frozen=True)
class Document:
    """A whole recipe."""

    method: str
    slices: tuple[Slice, ...]
    base: Reference | None
    stacked: bool
    """Whether it has slices, so that the output may have another depth."""
    shared: tuple[Settings, ...]
    """The parameters of the module, where there is one, and of the recipe."""
    dtype: str | None
    ignored: tuple[str, ...]


_READ = {"merge_method", "models", "slices", "modules", "base_model", "parameters"}
_READ |= {"dtype", "out_dtype"}
_ASIDE = {
    "tokenizer_source": "the first model's tokenizer is kept, its embeddings are merged by row",
    "tokenizer": "the first model's tokenizer is kept, its embeddings are merged by row",
    "chat_template": "the first model's tokenizer files are kept as they are",
}


def parse(recipe: Mapping[str, Any], where: str) -> Document:
    """Read the words of a recipe; no model is looked at."""
    base = _reference(recipe["base_model"], where) if recipe.get("base_model") else None
    body: Mapping[str, Any] = recipe
    shared = [_settings(recipe, where)]
    given = [key for key in ("models", "slices", "modules") if recipe.get(key)]
    if len(given) != 1:
        found = ", ".join(given) or "none of them"
        raise BadParameterError(f"{where}: expected one of models, slices, modules, got {found}.")
    if modules := recipe.get("modules"):
        if len(modules) != 1:
            raise BadParameterError(
                f"{where}: expected one module, got {', '.join(modules)}; merge one at a time."
            )
        (body,) = modules.values()
        shared.insert(0, _settings(body, where))
    if body.get("models"):
        inputs = [_input(entry, where) for entry in body["models"]]
        if base is not None and base not in [one.model for one in inputs]:
            inputs.append(Input(base, None, None, {}))
        slices = [_slice(inputs, {}, base, where)]
    else:
        slices = [
            _slice(
                [_input(entry, where, sliced=True) for entry in one.get("sources") or ()],
                _settings(one, where),
                _reference(one["base_model"], where) if one.get("base_model") else base,
                where,
            )
            for one in body.get("slices") or ()
        ]
    ignored = [f"{key} ({_ASIDE.get(key, 'unknown here')})" for key in recipe if key not in _READ]
    dtype = recipe.get("out_dtype") or recipe.get("dtype")
    return Document(
        method=str(recipe["merge_method"]),
        slices=tuple(slices),
        base=base,
        stacked=not body.get("models"),
        shared=tuple(shared),
        dtype=None if dtype is None else str(dtype),
        ignored=tuple(ignored),
    )


def _slice(inputs: list[Input], own: Settings, base: Reference | None, where: str) -> Slice:
    if not inputs:
        raise BadParameterError(f"{where}: a slice without sources.")
    seen: set[Reference] = set()
    for one in inputs:
        if one.model in seen:
            raise BadParameterError(f"{where}: {one.model} is listed twice among what is merged.")
        seen.add(one.model)
    if len({one.layers for one in inputs}) > 1:
        found = ", ".join(str(one.layers) for one in inputs)
        raise BadParameterError(
            f"{where}: the sources of a slice must have one number of layers, got {found}."
        )
    return Slice(tuple(inputs), own, base)


def _input(entry: Any, where: str, *, sliced: bool = False) -> Input:
    if not isinstance(entry, Mapping) or "model" not in entry:
        raise BadParameterError(f"{where}: expected an entry with `model`, got {entry!r}.")
    model = _reference(entry["model"], where)
    own = _settings(entry, where)
    if not sliced:
        return Input(model, None, None, own)
    match entry.get("layer_range"):
        case [int(first), int(behind)] if 0 <= first < behind:
            return Input(model, first, behind - first, own)
        case span:
            raise BadParameterError(
                f"{where}: {model}: expected layer_range: [first, behind the last], got {span!r}."
            )


def _settings(entry: Mapping[str, Any], where: str) -> Settings:
    found = entry.get("parameters") or {}
    if not isinstance(found, Mapping):
        raise BadParameterError(f"{where}: parameters: expected a mapping, got {found!r}.")
    return found


def _reference(model: Any, where: str) -> Reference:
    """`path`, `path@revision`, `path+adapter`, or a mapping of these parts."""
    if isinstance(model, str):
        path, plus, lora = model.partition("+")
        found = _place(path, where)
        adapter = _place(lora, where) if plus else None
    elif isinstance(model, Mapping) and "model" in model:
        found = _place(model["model"], where)
        adapter = _place(model["lora"], where) if model.get("lora") else None
        if model.get("override_architecture"):
            raise BadParameterError(f"{where}: override_architecture is not supported.")
    elif isinstance(model, Mapping):
        found, adapter = _place(model, where), None
    else:
        raise BadParameterError(f"{where}: expected a model's path or hub id, got {model!r}.")
    return Reference(found.path, found.revision, adapter)


def _place(place: Any, where: str) -> Reference:
    if isinstance(place, Mapping) and isinstance(place.get("path"), str):
        revision = place.get("revision")
        return Reference(place["path"], None if revision is None else str(revision))
    if isinstance(place, str) and place:
        path, _, revision = place.partition("@")
        return Reference(path, revision or None)
    raise BadParameterError(f"{where}: expected a model's path or hub id, got {place!r}.")
