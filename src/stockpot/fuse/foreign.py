"""Recipes of other programs: mergekit's YAML and FusionBench's model pools.

What applies is read; what does not is named in `ignored`, never passed over in silence.
"""

from __future__ import annotations

from pathlib import Path

from stockpot.errors import BadParameterError
from stockpot.fuse.foreign_recipe import ForeignRecipe
from stockpot.fuse.fusionbench.hydra import compose, read_yaml
from stockpot.fuse.fusionbench.pool import NOT_NEEDED, PLACES, from_composed, is_pool, under_root
from stockpot.fuse.mergekit.recipe import from_mergekit


def read_foreign(path: str | Path, *, models_root: str | Path | None = None) -> ForeignRecipe:
    """Read a mergekit recipe, or a FusionBench model pool with or without a method.

    Args:
        path: the YAML file.
        models_root: a folder that holds models under their hub ids (`owner/name`) or names; those
            that are not there are looked for as everywhere else.
    """
    path = Path(path)
    content = read_yaml(path)
    if "merge_method" in content:
        recipe = from_mergekit(content, where=str(path))
    else:
        found = compose(path, PLACES, NOT_NEEDED)
        if not is_pool(found.content):
            raise BadParameterError(
                f"{path}: neither a mergekit recipe (merge_method) nor a FusionBench model pool "
                "(models)."
            )
        recipe = from_composed(found, where=str(path))
    return recipe if models_root is None else under_root(recipe, Path(models_root).expanduser())
