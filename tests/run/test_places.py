"""A recipe and what it names go together into any folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import stockpot
from commands import invoke
from pico import make_dataset
from stockpot.errors import UserError
from stockpot.run.follow import preview, read

RECIPE = """
version: 1
data: {toy: {dataset: toy.npz}, icons: {dataset: icons, limit: 4}}
models: {a: {load: models/a}, zoo: {load: icons-resnet}}
measure: {models: [a], with: [{measure: clean, data: toy}]}
"""


@pytest.fixture
def sent(pico_vit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a recipe and all that it names; one stands elsewhere."""
    folder, here = tmp_path / "sent", tmp_path / "here"
    here.mkdir()
    shutil.copytree(pico_vit, folder / "models" / "a")
    data = make_dataset(8)
    pixels, labels = data.images.pixels.numpy(), data.labels.numpy()
    np.savez(folder / "toy.npz", images=pixels, labels=labels, classes=list(data.classes))
    (folder / "recipe.yaml").write_text(RECIPE)
    monkeypatch.chdir(here)
    return folder


def test_paths_are_meant_from_the_recipe(sent: Path) -> None:
    for recipe in (sent / "recipe.yaml", Path("../sent/recipe.yaml")):
        found = read(recipe).recipe
        assert Path(found.data["toy"].dataset).samefile(sent / "toy.npz")
        assert Path(str(found.models["a"].load)).samefile(sent / "models" / "a")
    assert "well formed" in invoke("validate", "../sent/recipe.yaml").output
    came = stockpot.run("../sent/recipe.yaml", out="run")
    assert came.results[0].data.n == 8
    # The recipe that the run keeps is followed again from here, though it lies elsewhere.
    assert all(cell.there for cell in preview("run/recipe.yaml", out="run").cells)


def test_names_stay_names_and_what_is_typed_is_meant_from_here(sent: Path) -> None:
    (sent / "icons").mkdir()
    (sent / "icons-resnet").mkdir()
    found = read(sent / "recipe.yaml").recipe
    assert (found.data["icons"].dataset, found.models["zoo"].load) == ("icons", "icons-resnet")
    typed = read(sent / "recipe.yaml", ["data.toy.dataset=toy.npz"]).recipe
    assert typed.data["toy"].dataset == "toy.npz"
    with pytest.raises(UserError, match=r"toy\.npz"):
        stockpot.run(sent / "recipe.yaml", out="run", **{"data.toy.dataset": "toy.npz"})


def test_what_is_not_beside_the_recipe_is_meant_from_here(sent: Path) -> None:
    shutil.move(sent / "toy.npz", "toy.npz")
    shutil.move(sent / "models", "models")
    assert "well formed" in invoke("validate", sent / "recipe.yaml").output


def test_a_factory_beside_the_recipe(sent: Path) -> None:
    (sent / "net.py").write_text("def make(): ...\n")
    path = sent / "recipe.yaml"
    path.write_text(RECIPE.replace("load: models/a", "load: 'net.py:make'"))
    assert read(path).recipe.models["a"].load == f"{sent / 'net.py'}:make"
