"""Recipes of mergekit and FusionBench are read, and what does not apply is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from stockpot.errors import BadParameterError
from stockpot.fuse.foreign import read_foreign
from stockpot.fuse.run import fuse

DATA = Path(__file__).parents[1] / "oracles" / "data" / "fuse"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "recipe.yml"
    path.write_text(text)
    return path


def test_a_mergekit_recipe_gives_mergekits_result(tmp_path: Path) -> None:
    recipe = read_foreign(
        write(
            tmp_path,
            f"""
            merge_method: ties
            base_model: {DATA}/base.safetensors
            models:
              - model: {DATA}/base.safetensors
              - model: {DATA}/m0.safetensors
                parameters: {{weight: 0.5}}
              - model: {DATA}/m1.safetensors
                parameters: {{weight: 1.0}}
              - model: {DATA}/m2.safetensors
                parameters: {{weight: 2.0}}
            parameters: {{density: 0.4, lambda: 0.7, int8_mask: true}}
            dtype: float32
            tokenizer_source: base
            """,
        )
    )
    assert recipe.method == "ties"
    assert recipe.options == {"dtype": "fp32"}
    assert list(recipe.members) == [f"{DATA}/m{i}.safetensors" for i in range(3)]
    assert recipe.ignored == (
        "parameters.int8_mask (no counterpart)",
        "tokenizer_source (does not apply here)",
    )
    got = fuse(recipe.method, recipe.members, base=recipe.base, **recipe.params)
    want = load_file(DATA / "mergekit.safetensors")
    exact = [name for name in got if "layers.1" in name]  # no ties of magnitude there
    assert all(torch.equal(got[name], want[f"ties_weighted/{name}"]) for name in exact)


def test_filters_and_gradients_become_globs_and_lists(tmp_path: Path) -> None:
    recipe = read_foreign(
        write(
            tmp_path,
            """
            merge_method: slerp
            base_model: b
            models: [{model: a}, {model: b}]
            parameters:
              t: [{filter: self_attn, value: [0, 0.5, 1]}, {value: 0.3}]
            """,
        )
    )
    assert list(recipe.members) == ["b", "a"]
    assert recipe.base is None
    assert recipe.params == {"t": {"*self_attn*": [0, 0.5, 1], "*": 0.3}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("merge_method: passthrough\nmodels: [{model: a}]", "is not supported"),
        ("merge_method: linear\nslices: []", "expected `models`"),
        ("hello: world", "neither a mergekit recipe"),
        ("[1, 2]", "expected a mapping"),
        ("a: [", "not valid YAML"),
        (
            "merge_method: linear\nmodels: [{model: a, parameters: {weight: 1}}, {model: b}]",
            "every",
        ),
    ],
)
def test_what_cannot_be_read_is_said(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadParameterError, match=message):
        read_foreign(write(tmp_path, text))


def test_a_fusionbench_pool(tmp_path: Path) -> None:
    pool = read_foreign(
        write(
            tmp_path,
            """
            _target_: fusion_bench.modelpool.CLIPVisionModelPool
            processor: openai/clip-vit-base-patch32
            models:
              _pretrained_: openai/clip-vit-base-patch32
              sun397: tanganke/clip-vit-base-patch32_sun397
              cars: {_target_: x, pretrained_model_name_or_path: tanganke/cars}
            """,
        )
    )
    assert pool.base == "openai/clip-vit-base-patch32"
    assert pool.members == {
        "sun397": "tanganke/clip-vit-base-patch32_sun397",
        "cars": "tanganke/cars",
    }
    assert pool.ignored == ("processor (fusion needs weights only)",)
    assert pool.method is None
