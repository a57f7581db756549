"""Experts of a dual encoder: vision towers that are saved alone and put back where they belong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

from dual_encoders import PLAIN, make_clip, make_expert
from pico import CLASSES, make_dataset
from stockpot.errors import BadCheckpointError, UserError
from stockpot.fuse.record import fusion_record
from stockpot.fuse.run import fuse
from stockpot.harden.run import harden
from stockpot.measure.run import measure
from stockpot.models.dual_encoder import new_tokenizer
from stockpot.models.load import identify, load_model
from stockpot.models.text_head import make_head
from stockpot.models.vision_tower import save_dual_encoder


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_clip(tmp_path_factory.mktemp("clip") / "base")


@pytest.fixture
def expert(base: Path, tmp_path: Path) -> Path:
    return make_expert(base, tmp_path / "expert", seed=1)


def pixels() -> torch.Tensor:
    return torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(4))


def test_the_library_reads_an_expert_and_gives_the_same_logits(base: Path, expert: Path) -> None:
    tower = hf.CLIPVisionModel.from_pretrained(expert).eval()
    whole = hf.CLIPModel.from_pretrained(base).eval()
    ours = load_model(expert, classes=CLASSES).eval()
    seen = ours.preprocess.normalise(pixels())
    with torch.inference_mode():
        image = whole.visual_projection(tower(pixel_values=seen).pooler_output)
        expected = (
            whole.logit_scale.exp() * torch.nn.functional.normalize(image) @ ours.network.head.T
        )
        torch.testing.assert_close(ours(pixels()), expected, rtol=1e-5, atol=1e-5)
    assert not any("text" in name for name in load_file(expert / "model.safetensors"))


@pytest.mark.parametrize("prefix", ["vision_model.", "model.vision_model.", ""])
def test_published_layouts_are_read(base: Path, expert: Path, tmp_path: Path, prefix: str) -> None:
    expected = load_model(expert, classes=CLASSES).eval()(pixels())
    other = Path(shutil.copytree(expert, tmp_path / "published"))
    weights = {prefix + name: t for name, t in load_file(expert / "model.safetensors").items()}
    weights[f"{prefix}embeddings.position_ids"] = torch.arange(5)[None]
    save_file(weights, other / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((other / "config.json").read_text())
    config["_name_or_path"] = config.pop("dual_encoder")
    (other / "config.json").write_text(json.dumps(config))
    assert torch.equal(load_model(other, classes=CLASSES).eval()(pixels()), expected)


def test_a_pool_can_be_moved(base: Path, expert: Path, tmp_path: Path) -> None:
    expected = load_model(expert, classes=CLASSES).eval()(pixels())
    copied = tmp_path / "elsewhere"
    shutil.copytree(base, copied / "base")
    shutil.copytree(expert, copied / "expert")
    config = json.loads((copied / "expert" / "config.json").read_text())
    config["dual_encoder"] = "/gone/base"
    (copied / "expert" / "config.json").write_text(json.dumps(config))
    assert torch.equal(load_model(copied / "expert", classes=CLASSES).eval()(pixels()), expected)
    fused = fuse("average", [copied / "expert"], out=tmp_path / "far" / "fused")
    assert torch.equal(load_model(fused, classes=CLASSES).eval()(pixels()), expected)


def change(folder: Path, **keys: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


def test_an_expert_without_a_home_says_what_to_do(expert: Path) -> None:
    change(expert, dual_encoder="", _name_or_path="")
    with pytest.raises(UserError, match="dual_encoder=") as problem:
        load_model(expert, classes=CLASSES)
    assert "\n" not in problem.value.message


def test_a_torn_expert_is_refused(expert: Path) -> None:
    weights = load_file(expert / "model.safetensors")
    weights.pop("post_layernorm.weight")
    save_file(weights, expert / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BadCheckpointError, match="lacks post_layernorm"):
        load_model(expert, classes=CLASSES)


def test_fine_tuning_moves_the_vision_tower_alone(base: Path, tmp_path: Path) -> None:
    before = hf.CLIPModel.from_pretrained(base).state_dict()
    model = harden("nominal", base, make_dataset(16), out=tmp_path / "e", epochs=1, batch_size=8)
    after = model.network.model.state_dict()
    moved = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert moved
    assert all(name.startswith("vision_model.") for name in moved)
    again = load_model(tmp_path / "e", classes=CLASSES).eval()
    with torch.inference_mode():
        assert torch.equal(again(pixels()), model.eval()(pixels()))


def test_experts_and_a_whole_base_fuse_and_are_measured(base: Path, tmp_path: Path) -> None:
    experts = [make_expert(base, tmp_path / f"e{seed}", seed=seed) for seed in (1, 2)]
    towers = [load_file(folder / "model.safetensors") for folder in experts]
    whole = load_file(base / "model.safetensors")
    fused = fuse("task_arithmetic", experts, base=base, out=tmp_path / "sum", scale=0.5)
    lone = fuse("average", experts, out=tmp_path / "mean")
    weights = load_file(fused / "model.safetensors")
    name = "encoder.layers.1.mlp.fc1.weight"
    start = whole[f"vision_model.{name}"]
    expected = start + 0.5 * ((towers[0][name] - start) + (towers[1][name] - start))
    torch.testing.assert_close(weights[f"vision_model.{name}"], expected)
    for key in ("text_projection.weight", "visual_projection.weight", "logit_scale"):
        assert torch.equal(weights[key], whole[key])
    results = measure({"sum": fused, "mean": lone}, "clean", data=make_dataset())
    assert len({result.score("nll").value for result in results}) == 2


def test_heads_are_made_once_per_vocabulary(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experts = {f"e{seed}": make_expert(base, tmp_path / f"e{seed}", seed=seed) for seed in (5, 6)}
    made = []

    def counted(model: Any, tokenizer: Any, prompts: Any) -> torch.Tensor:
        made.append(prompts)
        return make_head(model, tokenizer, prompts)

    monkeypatch.setattr("stockpot.models.text_head.make_head", counted)
    fresh = ("wasp", "moth", "crow", "newt")
    for data in (make_dataset(8, classes=fresh), make_dataset(12, classes=fresh)):
        measure(experts, "clean", data=data)
    assert sum(prompts[0][0] == "a photo of a wasp." for prompts in made) == 1


def test_siglip_towers_travel_alone_too(tmp_path: Path) -> None:
    tokenizer = new_tokenizer(["a photo of an ant.", "a photo of a bee."], 300, 16)
    small = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    config = hf.SiglipConfig(
        vision_config={**small, "num_hidden_layers": 2, "image_size": 16, "patch_size": 8},
        text_config={**small, "num_hidden_layers": 1, "vocab_size": len(tokenizer),
                     "max_position_embeddings": 16, "projection_size": 16},
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save_dual_encoder(hf.SiglipModel(config), tokenizer, PLAIN, tmp_path / "whole")
    model = load_model(tmp_path / "whole", classes=CLASSES).eval()
    expert = load_model(model.save(tmp_path / "tower"), classes=CLASSES).eval()
    assert not any("text" in name for name in load_file(tmp_path / "tower" / "model.safetensors"))
    assert torch.equal(expert(pixels()), model(pixels()))


def test_an_expert_is_known_with_its_dual_encoder_wherever_both_lie(tmp_path: Path) -> None:
    """Moving both changes nothing; other weights under the dual encoder's name do."""
    home = tmp_path / "here"
    base = make_clip(home / "base")
    expert = make_expert(base, home / "expert", seed=1)
    assert json.loads((expert / "config.json").read_text())["dual_encoder"] == "../base"
    marks = {identify(expert), load_model(expert, classes=CLASSES).origin.fingerprint}
    record = fusion_record("average", [expert]).digest
    moved = tmp_path / "there"
    home.rename(moved)
    marks |= {identify(moved / "expert")}
    assert len(marks) == 1
    assert fusion_record("average", [moved / "expert"]).digest == record
    shutil.rmtree(moved / "base")
    make_clip(moved / "base", seed=7)
    marks |= {identify(moved / "expert")}
    marks |= {load_model(moved / "expert", classes=CLASSES).origin.fingerprint}
    assert len(marks) == 2
    assert fusion_record("average", [moved / "expert"]).digest != record


def test_an_expert_at_an_absolute_path_is_known_by_content(tmp_path: Path) -> None:
    first, second = (make_clip(tmp_path / name / "base") for name in ("a", "b"))
    expert = make_expert(first, tmp_path / "expert", seed=1)
    before = identify(expert)
    change(expert, dual_encoder=str(second))  # the same content elsewhere
    assert identify(expert) == before
    assert identify(expert, {"dual_encoder": str(first)}) == before
    change(expert, hidden_act="gelu")
    assert identify(expert) != before
