"""Model pools of FusionBench, in our words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stockpot.errors import BadParameterError
from stockpot.fuse.foreign_recipe import ForeignRecipe


def from_model_pool(pool: Mapping[str, Any], *, where: str = "model pool") -> ForeignRecipe:
    """The members and the base of a FusionBench model pool."""
    models = pool["models"]
    if not isinstance(models, Mapping):
        # Pools of FusionBench 0.1 list {name: ..., path: ...} entries.
        models = {entry["name"]: entry["path"] for entry in models}
    paths = {str(name): _model_path(name, entry, where) for name, entry in models.items()}
    base = paths.get("_pretrained_")
    members = {n: p for n, p in paths.items() if not (n.startswith("_") and n.endswith("_"))}
    known = {"models", "_target_", "_recursive_", "type"}
    ignored = [f"{key} (fusion needs weights only)" for key in pool if key not in known]
    ignored += [
        f"models.{name} (a special model)"
        for name in paths
        if name not in members and name != "_pretrained_"
    ]
    return ForeignRecipe(members, base, ignored=tuple(ignored))


def _model_path(name: str, entry: Any, where: str) -> str:
    if isinstance(entry, str):
        return entry
    if isinstance(entry, Mapping):
        for key in ("pretrained_model_name_or_path", "path", "model_name_or_path"):
            if isinstance(entry.get(key), str):
                return str(entry[key])
    raise BadParameterError(f"{where}: models.{name}: expected a path or a hub id, got {entry!r}.")
