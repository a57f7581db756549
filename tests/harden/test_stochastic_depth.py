"""Stochastic depth: which branches are left out, how often, and from which draws."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from pico import make_classifier, make_dataset
from stockpot.errors import BadParameterError
from stockpot.harden import hardeners
from stockpot.harden.augment import augment
from stockpot.harden.loop import train
from stockpot.harden.state import Resume
from stockpot.harden.stochastic_depth import residual_branches, stochastic_depth
from stockpot.models.huggingface import new_huggingface
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize
from towers import FAMILIES, dual

SIDE = ImageSize(16, 16)


def new(kind: str, **settings: object) -> nn.Module:
    return new_huggingface(
        kind,
        classes=("ant", "bee", "cat", "dog"),
        preprocess=Preprocess(SIDE, SIDE),
        seed=0,
        **settings,
    )


class One(nn.Module):
    def forward(self, values: Tensor) -> Tensor:
        return torch.ones_like(values)


class Block(nn.Module):
    """Adds one."""

    def __init__(self) -> None:
        super().__init__()
        self.shortcut, self.layer = nn.Identity(), One()

    def forward(self, values: Tensor) -> Tensor:
        return self.layer(values) + self.shortcut(values)


def test_the_rate_rises_with_depth_and_the_mean_stays() -> None:
    model = nn.Sequential(Block(), Block(), Block())
    branches = residual_branches(model)
    assert [branch.depth for branch in branches] == [0.0, 0.5, 1.0]
    zeros = torch.zeros(20_000, 1)
    with torch.random.fork_rng(), stochastic_depth(branches, 0.4):
        torch.manual_seed(0)
        # Blocks add 1, 1/0.8 with chance 0.8, 1/0.6 with chance 0.6.
        found = model(zeros)[:, 0]
        assert torch.equal(model.eval()(zeros), zeros + 3)
    model.train()
    values, counts = found.round(decimals=4).unique(return_counts=True)
    expected = [1.0, 2.25, 1 + 1 / 0.6, 2.25 + 1 / 0.6]
    assert values.tolist() == pytest.approx(expected, abs=1e-3)
    shares = (counts / 20_000).tolist()
    assert shares == pytest.approx([0.2 * 0.4, 0.8 * 0.4, 0.2 * 0.6, 0.8 * 0.6], abs=0.015)
    assert torch.equal(model(zeros), zeros + 3)  # outside, nothing is left out


def text_parts(model: nn.Module) -> list[nn.Module]:
    return [module for name, module in model.named_modules() if "text" in name]


@pytest.mark.parametrize("family", ["vit", "deit", "clip classifier", "siglip zero-shot"])
def test_transformers_have_two_branches_a_block(family: str) -> None:
    model = FAMILIES[family]()
    layers = {n for n, _ in model.named_modules() if n.rpartition(".")[2].isdecimal()}
    layers = {name for name in layers if "text" not in name}
    image = [b for b in residual_branches(model) if b.end not in text_parts(model)]
    assert len(image) == 2 * len(layers) > 0


def test_a_dropped_branch_leaves_what_passes_by() -> None:
    """With almost every branch left out, logits are those of the embedding alone."""
    model = new("vit", hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
                intermediate_size=16, image_size=16, patch_size=8)  # fmt: skip
    pixels = torch.rand(3, 3, 16, 16)
    branches = [branch._replace(depth=1.0) for branch in residual_branches(model)]
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        with stochastic_depth(branches, 0.999999):
            found = model.train()(pixels)
        inner = model.network.model
        hidden = inner.vit.embeddings(model.seen(pixels))
        expected = inner.classifier(inner.vit.layernorm(hidden)[:, 0])
    torch.testing.assert_close(found, expected)


def test_both_towers_begin_at_zero() -> None:
    depths = [branch.depth for branch in residual_branches(dual("clip"))]
    assert depths == [0.0, 0.0, 0.5, 0.5, 1.0, 1.0] * 2  # three blocks each


@pytest.mark.parametrize(
    ("kind", "settings", "blocks"),
    [
        ("wrn-10-1", {}, 3),
        ("small_resnet", {"embedding_size": 4, "hidden_sizes": [4, 4], "depths": [1, 1],
                          "layer_type": "basic"}, 2),
        ("convnext", {"hidden_sizes": [4, 4], "depths": [1, 1], "num_stages": 2}, 2),
    ],
)  # fmt: skip
def test_convolutional_families_have_one_branch_a_block(kind, settings, blocks) -> None:
    assert len(residual_branches(new(kind, **settings))) == blocks


class StopError(Exception):
    pass


def test_a_seed_fixes_the_weights_and_a_stopped_run_resumes_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"epochs": 1, "batch_size": 8, "drop_path": 0.5, "schedule": "step", "seed": 5,
                "augmentations": ("random_resized_crop",), "betas": (0.9, 0.95)}  # fmt: skip

    def trained(**more: object) -> dict[str, Tensor]:
        model = new("wrn-10-1")
        train(model, make_dataset(), hardeners.get("nominal")(), **{**settings, **more})
        return dict(model.state_dict())

    whole = trained()
    again, other = trained(), trained(drop_path=0.0)
    assert all(torch.equal(whole[name], again[name]) for name in whole)
    assert any(not torch.equal(whole[name], other[name]) for name in whole)
    steps = iter(range(3))

    def interrupted(*args: object) -> Tensor:
        if next(steps, None) is None:
            raise StopError
        return augment(*args)

    resume = Resume(tmp_path / "state.pt", every=1)
    with monkeypatch.context() as patch:
        patch.setattr("stockpot.harden.loop.augment", interrupted)
        with pytest.raises(StopError):
            trained(resume=resume)
    resumed = trained(resume=resume)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_a_network_without_residual_blocks_is_told() -> None:
    model = make_classifier(nn.Sequential(nn.Flatten(), nn.Linear(768, 4)))
    with pytest.raises(BadParameterError, match="drop_path: no residual blocks"):
        train(model, make_dataset(), hardeners.get("nominal")(), epochs=1, drop_path=0.1)
