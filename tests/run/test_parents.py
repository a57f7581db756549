"""A model of a recipe is read with its options, whatever is made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import stockpot
from stockpot.checkpoints.open import open_checkpoint, read_tensors
from stockpot.recipe import RecipeError
from stockpot.run.check import check
from stockpot.run.follow import preview, read
from stockpot.run.order import order_of

OTHER = "icons-vit-cutmix"


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """An adapter over another base than its config names, and what is made of it."""
    lora = tmp_path_factory.mktemp("pool") / "lora"
    stockpot.fuse("average", ["icons-vit-plain"], base="icons-vit", as_lora=2, out=lora)
    return {
        "version": 1,
        "data": {"few": {"dataset": "icons", "limit": 8}},
        "models": {"tuned": {"load": str(lora), "base": OTHER}},
        "fuse": {"fused": {"method": "average", "models": ["tuned"]}},
        "harden": {"trained": {"method": "nominal", "model": "tuned", "data": "few"}},
        "season": {"soup": {"method": "uniform", "models": ["tuned"], "data": "few"}},
    }


def test_an_adapter_is_fused_over_the_base_of_the_recipe(
    recipe: dict[str, Any], tmp_path: Path
) -> None:
    fused = {key: recipe[key] for key in ("version", "models", "fuse")}
    stockpot.run(fused, out=tmp_path)
    want = open_checkpoint(recipe["models"]["tuned"]["load"], base=open_checkpoint(OTHER))
    got = read_tensors(tmp_path / "models" / "fused")
    assert all(torch.equal(values, want.read(name)) for name, values in got.items())
    plain = {**fused, "models": {"tuned": {"load": recipe["models"]["tuned"]["load"]}}}
    assert not preview(plain, out=tmp_path).models[0].there


def test_training_and_seasoning_begin_at_the_model_that_is_measured(
    recipe: dict[str, Any], tmp_path: Path
) -> None:
    asked = read(recipe).recipe
    want = stockpot.load_model(recipe["models"]["tuned"]["load"], base=OTHER)
    pixels = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    trained = order_of(asked, "trained", tmp_path).inputs[0]
    seasoned = order_of(asked, "soup", tmp_path).inputs[0]["tuned"]
    for model in (trained, seasoned):
        assert torch.equal(model(pixels), want(pixels))


def test_a_revision_goes_with_its_name(recipe: dict[str, Any], tmp_path: Path) -> None:
    hub = {**recipe, "models": {"tuned": {"load": "owner/name", "revision": "abc"}}}
    (members,) = order_of(read(hub).recipe, "fused", tmp_path).inputs
    assert members == {"tuned": "owner/name@abc"}


TUNE = {"method": "task_arithmetic", "models": ["tuned"], "base": "tuned", "data": "few"}
CORRUPTION = {"measure": "corruption", "data": "few", "baseline": "tuned"}


@pytest.mark.parametrize(
    "more", [{"tune": {"best": TUNE}}, {"measure": {"with": [CORRUPTION]}}], ids=["tune", "measure"]
)
def test_what_takes_a_source_alone_says_so(recipe: dict[str, Any], more: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match="tuned is loaded with base, which cannot be told here"):
        check(read({**recipe, **more}))
