"""Model pools of FusionBench, in our words.

A pool names a base (`_pretrained_`) and members: by path or hub id, by the function that loads
them, as LoRA adapters of a base, or as classifiers with a head for a dataset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stockpot.errors import BadParameterError, shortened
from stockpot.fuse.foreign_recipe import ForeignRecipe
from stockpot.fuse.fusionbench.hydra import Composed, interpolated
from stockpot.fuse.fusionbench.methods import from_method

BASE = "_pretrained_"
PLACES = ("", "models", "modelpool", "method")
"""What is read of a composed pool; its datasets, processors and devices are not needed."""
NOT_NEEDED = ("method",)
"""What may be missing: who has a pool alone names the method."""
_PATHS = (
    "pretrained_model_name_or_path",
    "path",
    "model_name_or_path",
    "config_path",
    "pickle_path",
    "state_dict_path",
)
_ADAPTERS = {"peft_name": "base_model_name", "peft_model_path": "base_model_path"}
"""The key of a LoRA adapter -> the key of the model under it."""
_KNOWN = {"models", "_target_", "_recursive_", "_version_", "_usage_", "type", "platform"}
_WHOLE = "load_fft_vision_model_hf"
_LINEARISED = "load_l_lora_vision_model_hf"


@dataclass(frozen=True)
class _Model:
    """One entry of a pool."""

    path: str
    under: str | None = None
    """The base that a LoRA adapter is added to."""
    ignored: str = ""


def is_pool(content: Mapping[str, Any]) -> bool:
    """Whether this is a model pool, or a configuration that holds one."""
    pool = content.get("modelpool", content)
    return isinstance(pool, Mapping) and "models" in pool


def from_composed(found: Composed, *, where: str) -> ForeignRecipe:
    """The pool in a composed file."""
    root = found.content
    place = ("modelpool",) if isinstance(root.get("modelpool"), Mapping) else ()
    pool = root["modelpool"] if place else root
    if pool["models"] == "???":
        raise BadParameterError(
            f"{where}: models: left open (???); this is a template for other pools."
        )
    models = interpolated(root, (*place, "models"), where)
    recipe = from_model_pool({**pool, "models": models}, where=where)
    left = [f"{name or 'defaults'} (fusion needs weights only)" for name in found.left_out]
    ignored = tuple(dict.fromkeys((*recipe.ignored, *left)))
    recipe = replace(recipe, ignored=ignored)
    if not place or not isinstance(root.get("method"), Mapping):
        return recipe
    settings = {key: _method_value(root, key, where) for key in root["method"]}
    method = from_method(settings, tuple(recipe.members), where)
    return replace(
        recipe,
        members={name: recipe.members[name] for name in method.order},
        method=method.name,
        params=method.params,
        ignored=(*recipe.ignored, *method.ignored),
        replaceable=True,
    )


def _method_value(root: Mapping[str, Any], key: str, where: str) -> Any:
    try:
        return interpolated(root, ("method", key), where)
    except BadParameterError:
        return None  # it names a part of the program that is not read, such as its devices


def from_model_pool(pool: Mapping[str, Any], *, where: str = "model pool") -> ForeignRecipe:
    """The members and the base of a pool whose files and references are resolved."""
    models = pool["models"]
    if not isinstance(models, Mapping):
        # Pools of FusionBench 0.1 list {name: ..., path: ...} entries.
        if not all(isinstance(entry, Mapping) and "name" in entry for entry in models or [None]):
            raise BadParameterError(
                f"{where}: models: expected a mapping from names to models, or a list of entries "
                f"with name and path, got {shortened(repr(models), 80)}."
            )
        models = {str(entry["name"]): entry for entry in models}
    found = {str(name): _model(str(name), entry, where) for name, entry in models.items()}
    members = {n: each for n, each in found.items() if not (n.startswith("_") and n.endswith("_"))}
    ignored = [f"{key} (fusion needs weights only)" for key in pool if key not in _KNOWN]
    ignored += [
        f"models.{name} (a special model)" for name in found if name not in members and name != BASE
    ]
    ignored += [f"models.{name}.{each.ignored}" for name, each in found.items() if each.ignored]
    base = _base(found, members, where)
    return ForeignRecipe(
        {name: each.path for name, each in members.items()}, base, ignored=tuple(ignored)
    )


def _base(found: Mapping[str, _Model], members: Mapping[str, _Model], where: str) -> str | None:
    """The base of the pool, which must be the one that its adapters were trained on."""
    base = found[BASE].path if BASE in found else None
    under = {each.under for each in members.values() if each.under}
    if base is None and len(under) == 1:
        return under.pop()
    for name, each in members.items():
        if each.under not in (None, base):
            raise BadParameterError(
                f"{where}: models.{name}: its adapter belongs to {each.under}, the pool's base is "
                f"{base}; one fusion has one base."
            )
    return base


def _model(name: str, entry: Any, where: str) -> _Model:
    if isinstance(entry, str):
        return _Model(entry)
    if isinstance(entry, Mapping):
        if str(entry.get("_target_", "")).endswith(_LINEARISED):
            raise BadParameterError(
                f"{where}: models.{name}: a linearised LoRA is a function of its own, not weights."
            )
        for key, under in _ADAPTERS.items():
            if isinstance(entry.get(key), str):
                return _Model(entry[key], str(entry[under]) if entry.get(under) else None)
        if entry.get("pretrained") is False:
            raise BadParameterError(
                f"{where}: models.{name}: pretrained: false asks for random weights of "
                f"{entry.get('config_path')}; expected weights to fuse."
            )
        if str(entry.get("_target_", "")).endswith(_WHOLE) and "model_name" in entry:
            return _Model(str(entry["model_name"]))
        for key in _PATHS:
            if isinstance(entry.get(key), str):
                # A dataset's name stands for a new head with its classes.
                new_head = "dataset_name (a new head)" if entry.get("dataset_name") else ""
                return _Model(entry[key], ignored=new_head)
    got = f"keys {', '.join(entry)}" if isinstance(entry, Mapping) else repr(entry)
    raise BadParameterError(
        f"{where}: models.{name}: expected a path or a hub id, got {got}.",
        hint="Save that model's weights and name their folder or file.",
    )


def under_root(recipe: ForeignRecipe, root: Path) -> ForeignRecipe:
    """The recipe with hub ids as folders below `root`: `owner/name`, or `name`, where they lie."""

    def local(source: Any) -> Any:
        if isinstance(source, str) and not Path(source).is_absolute():
            for place in (root / source, root / Path(source).name):
                if place.exists():
                    return str(place)
        return source

    members = {name: local(source) for name, source in recipe.members.items()}
    return replace(recipe, members=members, base=local(recipe.base))
