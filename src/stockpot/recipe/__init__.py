"""The YAML of one run: one file, no includes, no interpolation, unknown keys are errors.

    version: 1
    data:    {test: {dataset: icons, split: test}}
    models:  {resnet: {load: icons-resnet}}
    harden:  {tough: {method: nominal, model: resnet, data: train, epochs: 5}}
    fuse:    {soup: {method: average, models: [resnet, tough]}}
    season:  {best: {method: grid, models: [resnet, tough], data: test, shots: 100}}
    tune:    {tuned: {method: ties, models: [soup, tough], base: resnet, data: val}}
    measure: {models: [resnet, soup], with: [{measure: clean, data: test}]}
    report:  {title: A soup}

Every complaint names the line it is about.
"""

from __future__ import annotations

from stockpot.recipe.blocks import MeasureEntry, Recipe, json_schema
from stockpot.recipe.file import Overrides, RecipeError, RecipeFile, load_recipe
from stockpot.recipe.fuse_entry import FuseEntry
from stockpot.recipe.tune_entry import TuneEntry

__all__ = [
    "FuseEntry",
    "MeasureEntry",
    "Overrides",
    "Recipe",
    "RecipeError",
    "RecipeFile",
    "TuneEntry",
    "json_schema",
    "load_recipe",
]
