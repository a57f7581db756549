"""A saved result is an answer only where its pictures reached the model as they would now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import stockpot
from pico import CLASSES
from stockpot.models.huggingface import new_huggingface
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize

OLD = "resize 64x64 bicubic | crop 64x64 | normalise 0:1/0:1/0:1"
RECIPE = """\
version: 1
data: {few: {dataset: icons, split: test, limit: 8}}
models: {one: {load: MODEL}}
measure: {models: [one], with: [{measure: clean, data: few}]}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    side = ImageSize(64, 64)
    data = stockpot.load_dataset("icons", split="test", limit=8)
    network = new_huggingface(
        "small_resnet", classes=data.classes, preprocess=Preprocess(side, 73), seed=0,
        embedding_size=4, hidden_sizes=[4], depths=[1], layer_type="basic",
    )  # fmt: skip
    return network.save(tmp_path / "model")


def measured(model: Path, out: Path, **options: Any) -> Any:
    (result,) = stockpot.measure(
        str(model), "clean", data="icons", data_options={"limit": 8}, out=out, device="cpu",
        **options,
    )  # fmt: skip
    return result


def rewrite(out: Path, preprocessing: str) -> Path:
    """The result as a version that read the model's folder otherwise would have left it."""
    (path,) = (out / "results").glob("*.json")
    document = json.loads(path.read_text(encoding="utf-8"))
    document["model"]["preprocessing"] = preprocessing
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_what_was_read_otherwise_is_measured_again(model: Path, tmp_path: Path) -> None:
    first = measured(model, tmp_path / "out")
    again = measured(model, tmp_path / "out")
    assert again.provenance.created == first.provenance.created
    path = rewrite(tmp_path / "out", OLD)
    third = measured(model, tmp_path / "out")
    assert third.model.preprocessing == first.model.preprocessing != OLD
    assert third.outcomes == first.outcomes
    # In the place of the old one: no folder holds two answers to one question.
    assert [*(tmp_path / "out" / "results").glob("*.json")] == [path]
    assert json.loads(path.read_text())["model"]["preprocessing"] == first.model.preprocessing


def test_a_model_that_brings_pictures_in_its_own_way_is_not_measured_twice(
    model: Path, tmp_path: Path
) -> None:
    behind = {"model_options": {"defend": "ten_crop"}}
    first = measured(model, tmp_path / "out", **behind)
    assert first.model.preprocessing != measured(model, tmp_path / "plain").model.preprocessing
    again = measured(model, tmp_path / "out", **behind)
    assert again.provenance.created == first.provenance.created


def test_a_recipe_tells_and_does_it(model: Path, tmp_path: Path) -> None:
    from stockpot.recipe import load_recipe
    from stockpot.run.survey import survey

    recipe, out = tmp_path / "recipe.yaml", tmp_path / "out"
    recipe.write_text(RECIPE.replace("MODEL", str(model)), encoding="utf-8")
    (first,) = stockpot.run(recipe, out=out).results
    assert [cell.there for cell in survey(load_recipe(recipe), out).cells] == [True]
    rewrite(out, OLD)
    assert [cell.there for cell in survey(load_recipe(recipe), out).cells] == [False]
    (again,) = stockpot.run(recipe, out=out).results
    assert again.model.preprocessing == first.model.preprocessing


def test_other_pictures_behind_the_same_path_are_other_data(
    pico_vit: Path, toy_file: Path, tmp_path: Path
) -> None:
    """Also in the process that had read the path before."""
    recipe = {
        "version": 1,
        "data": {"toy": {"dataset": str(toy_file)}},
        "models": {"one": {"load": str(pico_vit)}},
        "measure": {"with": [{"measure": "clean", "data": "toy"}]},
    }

    def told() -> list[str]:
        cells = [
            *stockpot.measure(str(pico_vit), "clean", data=str(toy_file), device="cpu"),
            *stockpot.run(recipe, out=tmp_path / "run", device="cpu").results,
        ]
        return [cell.data.fingerprint for cell in cells]

    first = stockpot.load_dataset(str(toy_file)).fingerprint
    assert told() == [first, first]
    with np.load(toy_file) as file:
        other = {**file, "images": 255 - file["images"]}
    np.savez(toy_file, **other)
    second = stockpot.load_dataset(str(toy_file)).fingerprint
    assert second != first
    assert told() == [second, second]


def _write_split(folder: Path, seed: int) -> None:
    draw = np.random.default_rng(seed)
    for name in CLASSES:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(5):
            pixels = draw.integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


@pytest.mark.parametrize("held_out", ["val", "path"])
def test_other_held_out_images_behind_a_path_are_another_question(
    held_out: str, pico_vit: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    chosen = "val" if held_out == "val" else {"dataset": str(data), "split": "val"}

    def told(out: Path) -> list[float]:
        (cell,) = stockpot.measure(
            str(pico_vit), {"calibration": {"held_out": chosen}}, data=str(data),
            data_options={"split": "test"}, out=out, device="cpu",
        )  # fmt: skip
        return [score.value for score in cell.scores]

    _write_split(data / "test", 0)
    _write_split(data / "val", 1)
    first = told(tmp_path / "run")
    assert told(tmp_path / "run") == first
    _write_split(data / "val", 2)
    again = told(tmp_path / "run")
    assert again != first
    assert again == told(tmp_path / "fresh")
