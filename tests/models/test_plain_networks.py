"""Plain networks against transformers' own: same weights under the same names, same bits out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from stockpot.models.config import read_config
from stockpot.models.plain.load import plain_network

SMALL = {"num_channels": 3, "id2label": {i: f"c{i}" for i in range(7)}}
NARROW = {"embedding_size": 8, "hidden_sizes": [16, 24], "depths": [2, 2]}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "basic": ("resnet", {**NARROW, "layer_type": "basic"}),
    "bottleneck": ("resnet", {**NARROW, "downsample_in_first_stage": True}),
    "early stride": ("resnet", {**NARROW, "downsample_in_bottleneck": True}),
    "small pictures": ("small_resnet", {**NARROW, "layer_type": "basic", "stem_stride": 2}),
    "vit": (
        "vit",
        {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "image_size": 32,
         "intermediate_size": 40, "patch_size": 8, "qkv_bias": False},
    ),
}  # fmt: skip


def written(folder: Path, kind: str, settings: dict[str, Any]) -> Any:
    """transformers' network with weights and statistics drawn at random, saved."""
    from transformers import AutoConfig, AutoModelForImageClassification

    from stockpot.models.architectures.named import teach_transformers

    teach_transformers()
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **SMALL, **settings)
    model = AutoModelForImageClassification.from_config(config).eval()
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                spread = torch.rand_like(tensor) + 0.5
                tensor.copy_(spread if name.endswith(("var", "norm.weight")) else tensor + 0.1)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("name", MODELS)
def test_same_bits_and_names_as_transformers(name: str, tmp_path: Path) -> None:
    theirs = written(tmp_path, *MODELS[name])
    ours = plain_network(tmp_path, read_config(tmp_path))
    assert ours is not None
    assert list(ours.state_dict()) == list(theirs.state_dict())
    pixels = torch.randn(3, 3, 32, 32)
    with torch.inference_mode():
        assert torch.equal(ours(pixels).logits, theirs(pixel_values=pixels).logits)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_built_once_is_shared_by_nobody(name: str, tmp_path: Path) -> None:
    written(tmp_path, *MODELS[name])
    config = read_config(tmp_path)
    first, second = plain_network(tmp_path, config), plain_network(tmp_path, config)
    assert first is not None
    assert second is not None
    before = {key: value.clone() for key, value in second.state_dict().items()}
    with torch.no_grad():
        for tensor in first.state_dict().values():
            tensor.zero_()
    for own, other in zip(first.modules(), second.modules(), strict=True):
        assert own is not other
        own.register_forward_hook(lambda *_: None)
        assert not other._forward_hooks
        if hasattr(own, "config"):
            own.config._attn_implementation = "eager"
            assert other.config._attn_implementation == "sdpa"
    assert all(parameter.requires_grad for parameter in second.parameters())
    assert not any(module.training for module in second.modules())
    assert all(torch.equal(before[key], value) for key, value in second.state_dict().items())
    third = plain_network(tmp_path, config)
    assert third is not None
    assert not any(module._forward_hooks for module in third.modules())
    first.train().double().eval()  # as any module


@pytest.mark.parametrize(
    "change",
    [{"hidden_act": "silu"}, {"new_setting": 1}, {"architectures": ["Other"]}, {"depths": [2, 1]}],
    ids=str,
)
def test_what_is_not_understood_is_left_to_transformers(
    change: dict[str, Any], tmp_path: Path
) -> None:
    written(tmp_path, *MODELS["basic"])
    config = read_config(tmp_path) | change
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert plain_network(tmp_path, config) is None


def test_relevance_of_a_plain_transformer_is_that_of_transformers() -> None:
    from stockpot.checkpoints.resolve import resolve
    from stockpot.explain.run import explain
    from stockpot.models.huggingface import load_to_ask
    from stockpot.models.load import load_model

    pixels = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    ours, theirs = load_to_ask(resolve("icons-vit")), load_model("icons-vit")
    assert type(ours.network.model) is not type(theirs.network.model)
    found, expected = (explain(model, pixels, method="rollout") for model in (ours, theirs))
    assert torch.equal(found, expected)
