"""A set of tasks by one name: in `measure` and in recipes."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import invoke
from stockpot.measure.specs import data_specs as measured_data
from stockpot.recipe import RecipeError, RecipeFile
from stockpot.run.check import check
from stockpot.run.plan import data_specs

RECIPE = """
version: 1
data:
  few: {dataset: zoo5, limit: 7}
  zoo5: {dataset: zoo5}
  icons: {dataset: icons}
models: {a: {load: icons-vit}}
measure: {with: [{measure: clean, data: few}]}
"""


def test_a_set_becomes_its_tasks() -> None:
    names = ["cifar10", "mnist", "fashion_mnist", "quickdraw", "icons"]
    assert [spec.name for spec in measured_data("zoo5")] == names
    specs = measured_data({"few": "zoo5", "photos": Path("some/photos")}, {"limit": 3})
    assert [spec.name for spec in specs] == [*(f"few-{name}" for name in names), "photos"]
    assert all(spec.options == {"limit": 3} for spec in specs)


def test_recipes_know_sets() -> None:
    file = RecipeFile(RECIPE, "r.yaml")
    check(file)
    specs = data_specs(file.recipe, "few")
    assert [(spec.name, spec.source) for spec in specs][:2] == [
        ("few-cifar10", "cifar10"),
        ("few-mnist", "mnist"),
    ]
    assert {spec.options["limit"] for spec in specs} == {7}
    assert [spec.name for spec in data_specs(file.recipe, "icons")] == ["icons"]


def test_a_mistyped_set_is_told_with_its_line() -> None:
    with pytest.raises(RecipeError, match=r"r\.yaml:4: data\.few\.dataset"):
        check(RecipeFile(RECIPE.replace("dataset: zoo5, limit", "dataset: zo5, limit"), "r.yaml"))


def test_a_set_can_be_looked_up() -> None:
    shown = invoke("show", "ta8")
    assert shown.exit_code == 0
    assert "8 datasets, sun397, stanford_cars" in shown.output
