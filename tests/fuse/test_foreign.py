"""Recipes of mergekit and FusionBench are read, and what does not apply is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from commands import invoke
from merge_recipes import RECIPES, write_models, write_recipe
from stockpot.checkpoints.record import read_record
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
        "parameters.int8_mask (it saves mergekit memory and changes no number)",
        "tokenizer_source (the first model's tokenizer is kept, its embeddings are merged by row)",
    )
    got = fuse(recipe.method, recipe.members, base=recipe.base, **recipe.params)
    want = load_file(DATA / "mergekit.safetensors")
    exact = [name for name in got if "layers.1" in name]  # no ties of magnitude there
    assert all(torch.equal(got[name], want[f"ties_weighted/{name}"]) for name in exact)


def test_numbers_are_worked_out_tensor_by_tensor(tmp_path: Path) -> None:
    """The member's word, then the recipe's; a gradient begins again outside of the layers."""
    made = write_models(tmp_path)
    text = """
            merge_method: slerp
            base_model: B
            models: [{model: A}, {model: B}]
            parameters:
              t: [{filter: self_attn, value: [0, 0.5, 1]}, {filter: norm, value: [0.2, 0.8]}, {value: 0.3}]
            """  # noqa: E501
    recipe = read_foreign(write_recipe("", made, tmp_path / "recipe.yml", text))
    assert list(recipe.members) == [str(made["B"]), str(made["A"])]
    assert recipe.base is None
    t = recipe.params["t"]
    assert [t[f"model.layers.{i}.self_attn.q_proj.weight"] for i in (0, 3)] == [0, 1]
    assert t["model.layers.3.input_layernorm.weight"] == 0.8
    assert t["model.norm.weight"] == 0.2
    assert t["lm_head.weight"] == t["model.layers.2.mlp.up_proj.weight"] == 0.3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("merge_method: rum\nmodels: [{model: A}]", "is not supported"),
        ("merge_method: linear\nslices: []", "expected one of models, slices, modules"),
        (
            "merge_method: slerp\nbase_model: A\nparameters: {t: 1}\n"
            "models: [{model: A}, {model: B}, {model: C}]",
            "slerp merges 2 models, got 3: A, B, C",
        ),
        (
            "merge_method: passthrough\nmodels: [{model: A}, {model: B}]",
            "passthrough merges 1 model, got 2: A, B",
        ),
        (
            "merge_method: passthrough\nslices: [{sources: [{model: A, layer_range: [2, 5]}]}]",
            "A has no model.layers.4",
        ),
        ("merge_method: ties\nmodels: [{model: A}]", "ties needs a base_model"),
        (
            "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: A}, {model: A}]",
            "A is listed twice",
        ),
        ("hello: world", "neither a mergekit recipe"),
        ("[1, 2]", "expected a mapping"),
        ("a: [", "not valid YAML"),
        (
            "merge_method: linear\nmodels: [{model: A, parameters: {weight: 1}}, {model: B}]",
            "parameters.weight: expected a value for B",
        ),
    ],
)
def test_what_cannot_be_read_is_said(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadParameterError, match=message):
        read_foreign(write_recipe("", write_models(tmp_path), tmp_path / "recipe.yml", text))


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


def test_the_command_line_wins_and_says_so(tmp_path: Path) -> None:
    made = write_models(tmp_path)
    path = write_recipe("bio-merge", made, tmp_path / "recipe.yml")
    done = invoke("fuse", path, "-o", tmp_path / "out", "--dtype", "fp32", "-p", "scale=0")
    assert done.exit_code == 0, done.output
    lines = " ".join(done.output.split())
    assert "dtype fp16 gives way to --dtype fp32" in lines
    assert "scale gives way to -p scale=0" in lines
    got = load_file(tmp_path / "out" / "model.safetensors")
    assert {values.dtype for values in got.values()} == {torch.float32}
    base = load_file(made["BASE"] / "model.safetensors")
    assert all(torch.equal(got[name], base[name]) for name in base)
    done = invoke("fuse", path, made["C"], "-o", tmp_path / "more")
    assert done.exit_code != 0
    assert "has no place beside" in done.output


def test_a_number_of_the_merge_given_to_a_model_is_named(tmp_path: Path) -> None:
    made = write_models(tmp_path)
    recipe = read_foreign(write_recipe("task_arithmetic", made, tmp_path / "recipe.yml"))
    assert recipe.ignored == ("parameters.lambda of B (mergekit reads it for all models)",)


def test_a_revision_belongs_to_a_hub_id(tmp_path: Path) -> None:
    made = write_models(tmp_path)
    text = RECIPES["linear"].replace("model: A,", "model: {model: {path: A, revision: v2}},")
    with pytest.raises(BadParameterError, match="only a hub id has a revision"):
        read_foreign(write_recipe("", made, tmp_path / "recipe.yml", text))


def test_a_stack_is_known_by_its_layers(tmp_path: Path) -> None:
    """The same files, other layers: another question."""
    made = write_models(tmp_path)
    digests = []
    for number, text in enumerate(
        (RECIPES["stacked"], RECIPES["stacked"].replace("[2, 4]", "[1, 3]"), RECIPES["stacked"])
    ):
        recipe = read_foreign(write_recipe("", made, tmp_path / "recipe.yml", text))
        out = tmp_path / f"out{number}"
        assert recipe.method
        fuse(recipe.method, recipe.members, out=out, **recipe.params, **recipe.options)
        record = read_record(out)
        assert record is not None
        assert record.inputs[0].name.startswith("A-0-3-")
        digests.append(record.digest)
    assert digests[0] == digests[2] != digests[1]
