"""Recipes of other programs: mergekit's YAML and FusionBench's model pools.

What applies is read; what does not is named in `ignored`, never passed over in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from stockpot.errors import BadParameterError
from stockpot.fuse.foreign_recipe import ForeignRecipe
from stockpot.fuse.fusionbench import from_model_pool
from stockpot.fuse.mergekit.recipe import from_mergekit


def read_foreign(path: str | Path) -> ForeignRecipe:
    """Read a mergekit recipe or a FusionBench model pool, whichever the file is."""
    path = Path(path)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as problem:
        raise BadParameterError(f"{path}: not valid YAML: {problem}") from None
    if not isinstance(content, Mapping):
        raise BadParameterError(f"{path}: expected a mapping, got {type(content).__name__}.")
    if "merge_method" in content:
        return from_mergekit(content, where=str(path))
    pool = content.get("modelpool", content)
    if isinstance(pool, Mapping) and "models" in pool:
        return from_model_pool(pool, where=str(path))
    raise BadParameterError(
        f"{path}: neither a mergekit recipe (merge_method) nor a FusionBench model pool (models)."
    )
