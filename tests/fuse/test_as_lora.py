"""A fusion written as a LoRA adapter is the best of its rank, and says what it lost."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from commands import invoke
from dual_encoders import make_clip, make_expert
from stockpot.checkpoints.open import open_checkpoint
from stockpot.checkpoints.record import read_record
from stockpot.errors import BadParameterError
from stockpot.fuse.run import fuse
from stockpot.models.load import load_model
from tiny_clip import weights, write_clip

DROPPED = ["logit_scale", "vision_model.embeddings.class_embedding"]


def member(seed: int) -> dict[str, Tensor]:
    base, other = weights(), weights(seed)
    changed = {name: base[name] + 0.1 * (other[name] - base[name]) for name in base}
    frozen = "text_model.encoder.layers.0."
    return {name: base[name] if name.startswith(frozen) else v for name, v in changed.items()}


def cut(change: Tensor, rank: int) -> np.ndarray:
    """The best of its rank, by numpy in fp64."""
    flat = change.flatten(1).double().numpy()
    left, values, right = np.linalg.svd(flat, full_matrices=False)
    best = (left[:, :rank] * values[:rank]) @ right[:rank]
    return best.reshape(change.shape)


def test_the_adapter_is_the_best_of_its_rank(tmp_path: Path) -> None:
    base = weights()
    folder = write_clip(tmp_path / "base")
    pool = [member(1), member(2)]
    settings = {"base": folder, "scale": 0.7}
    whole = fuse("task_arithmetic", pool, **settings)
    out = fuse("task_arithmetic", pool, out=tmp_path / "lora", as_lora=3, **settings)
    names = sorted(path.name for path in out.iterdir())
    assert names == [
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
        "stockpot.json",
    ]
    source = open_checkpoint(out)  # the base is the one that the adapter names
    lost = total = 0.0
    for name, before in base.items():
        change = whole[name] - before
        want = change.double().numpy()
        if name in DROPPED:
            want = np.zeros_like(want)
        elif change.ndim == 4 or (change.ndim == 2 and "embedding.weight" not in name):
            want = cut(change, 3)
        got = (source.read(name) - before).double().numpy()
        assert np.allclose(got, want, rtol=0, atol=2e-5), name
        lost += float(((change.double().numpy() - want) ** 2).sum())
        total += float((change.double() ** 2).sum())
    record = read_record(out)
    assert record is not None
    told = record.details["as_lora"]
    assert told["dropped"] == DROPPED
    assert told["relative_error"] == pytest.approx((lost / total) ** 0.5, rel=1e-4)
    config = json.loads((out / "adapter_config.json").read_text())
    assert not any("text_model.encoder.layers.0" in name for name in config["target_modules"])
    assert "vision_model.pre_layrnorm" in config["modules_to_save"]


def test_a_rank_that_is_enough_loses_nothing(tmp_path: Path) -> None:
    folder = write_clip(tmp_path / "base")
    changed = member(1) | {name: weights()[name] for name in DROPPED}
    out = fuse("average", [changed], base=folder, as_lora=16, out=tmp_path / "lora")
    source = open_checkpoint(out)
    for name, values in changed.items():
        assert torch.allclose(source.read(name), values, rtol=0, atol=2e-5), name
    before = source.read(name).clone()
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for place in (folder, out):
        place.rename(moved / place.name)
    out = moved / "lora"
    assert torch.equal(open_checkpoint(out).read(name), before)
    # 8 x 8 layers have no 16 singular values; the pattern gives their own rank, the factor is 1.
    config = json.loads((out / "adapter_config.json").read_text())
    layer = "vision_model.encoder.layers.1.mlp.fc2"
    (pattern,) = [key for key in config["rank_pattern"] if re.match(rf"(.*\.)?({key})$", layer)]
    assert config["rank_pattern"][pattern] == config["alpha_pattern"][pattern] == 8


def test_an_adapter_is_measured_alone(tmp_path: Path) -> None:
    """By what its config names, by --base, and as the whole model that it stands for."""
    clip = make_clip(tmp_path / "clip")
    expert = make_expert(clip, tmp_path / "expert", seed=3)
    tower = {f"vision_model.{n}": v for n, v in load_file(expert / "model.safetensors").items()}
    tower = {n.replace("vision_model.vision_model.", "vision_model."): v for n, v in tower.items()}
    state = load_file(clip / "model.safetensors")
    tower["vision_model.embeddings.class_embedding"] = state[
        "vision_model.embeddings.class_embedding"
    ]
    save_file(state | tower, tmp_path / "whole.safetensors", metadata={"format": "pt"})
    whole = tmp_path / "merged"
    done = invoke("fuse", "average", tmp_path / "whole.safetensors", "--base", clip,
                  "--as-lora", 16, "-o", tmp_path / "lora")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "LoRA of rank 16" in done.output
    whole.mkdir()
    for path in clip.iterdir():
        (whole / path.name).write_bytes(path.read_bytes())
    save_file(state | tower, whole / "model.safetensors", metadata={"format": "pt"})
    classes, images = ("ant", "bee", "cat"), torch.rand(4, 3, 16, 16)
    with torch.no_grad():
        logits = {
            name: load_model(place, classes=classes, **options)(images)
            for name, (place, options) in {
                "adapter": (tmp_path / "lora", {}),
                "given": (tmp_path / "lora", {"base": clip}),
                "whole": (whole, {}),
                "base": (clip, {}),
            }.items()
        }
    assert torch.equal(logits["adapter"], logits["given"])
    assert torch.allclose(logits["adapter"], logits["whole"], atol=1e-4)
    assert not torch.allclose(logits["adapter"], logits["base"], atol=1e-2)
    done = invoke(
        "measure", tmp_path / "lora", clip, "--base", clip, "--data", "icons", "--limit", 4
    )
    assert done.exit_code == 0, done.output
    assert "lora" in done.output
    done = invoke("measure", whole, "--base", clip, "--data", "icons", "--limit", 2)
    assert "expected a LoRA adapter among the models" in done.output


def test_without_a_base_there_is_no_adapter(tmp_path: Path) -> None:
    with pytest.raises(BadParameterError, match="expected a base in a folder"):
        fuse("average", [member(1), member(2)], as_lora=4, out=tmp_path / "lora")
    folder = write_clip(tmp_path / "base")
    with pytest.raises(BadParameterError, match="changes no layer of the base"):
        fuse("task_arithmetic", [member(1)], base=folder, scale=0, as_lora=4, out=tmp_path / "lora")
    assert not (tmp_path / "lora").exists()
