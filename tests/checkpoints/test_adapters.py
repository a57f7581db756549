"""Adapters that peft wrote read as the models that peft merges from them.

The folders in `oracles/data/peft` are peft's own, over the whole CLIP of `tiny_clip`; `merged`
holds what `merge_and_unload` changed.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from stockpot.checkpoints.layouts import plain_name
from stockpot.checkpoints.open import open_checkpoint
from stockpot.errors import BadCheckpointError
from tiny_clip import vision_only, weights

PEFT = Path(__file__).parents[1] / "oracles" / "data" / "peft"
CASES = sorted(path.name for path in PEFT.iterdir() if path.is_dir())


@pytest.mark.parametrize("case", CASES)
def test_an_adapter_reads_as_peft_merges_it(case: str) -> None:
    base = weights()
    source = open_checkpoint(PEFT / case, base=open_checkpoint(base))
    changed = {
        plain_name(name): v for name, v in load_file(PEFT / case / "merged.safetensors").items()
    }
    assert list(source.tensors()) == list(base)
    seen = 0
    for name, before in base.items():
        want = changed.get(plain_name(name), before)
        assert torch.allclose(source.read(name), want, rtol=0, atol=1e-6), name
        seen += plain_name(name) in changed
    assert seen == len(changed) > 3


def test_an_adapter_of_a_whole_model_fits_its_tower(tmp_path: Path) -> None:
    """Trained over `vision_model.`, given a tower without that name in front."""
    tower = vision_only(weights())
    pair = load_file(PEFT / "rslora" / "adapter_model.safetensors")
    for name in [name for name in pair if "visual_projection" in name]:
        del pair[name]
    save_file(pair, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(
        (PEFT / "rslora" / "adapter_config.json").read_text()
    )
    source = open_checkpoint(tmp_path, base=open_checkpoint(tower))
    want = load_file(PEFT / "rslora" / "merged.safetensors")
    name = "encoder.layers.1.mlp.fc2.weight"
    assert torch.allclose(source.read(name), want[f"vision_model.{name}"], rtol=0, atol=1e-6)


def test_what_cannot_be_applied_is_named(tmp_path: Path) -> None:
    text = (PEFT / "whole" / "adapter_config.json").read_text()
    (tmp_path / "adapter_model.safetensors").write_bytes(
        (PEFT / "whole" / "adapter_model.safetensors").read_bytes()
    )
    config = tmp_path / "adapter_config.json"
    config.write_text(text.replace('"use_qalora": false', '"use_qalora": true'))
    with pytest.raises(BadCheckpointError, match="use_qalora"):
        open_checkpoint(tmp_path, base=open_checkpoint(weights()))
