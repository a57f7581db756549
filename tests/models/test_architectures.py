"""Networks for small pictures: sizes on paper, the ImageNet-C paper's own code, a way to disk."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForImageClassification

from pico import make_dataset
from stockpot.errors import UserError
from stockpot.harden.stochastic_depth import residual_branches
from stockpot.models.architectures.named import settings_of, teach_transformers
from stockpot.models.architectures.shake_shake import shaken
from stockpot.models.classifier import Classifier
from stockpot.models.forward.folding import adjacent, folded
from stockpot.models.huggingface import new_huggingface
from stockpot.models.load import load_model
from stockpot.models.new import new_model
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize

TINY: dict[str, dict[str, Any]] = {
    "cifar_resnet": {"depth": 14, "channels": 4, "shortcut": "projection"},
    "cifar_resnext": {"depth": 11, "cardinality": 2, "width": 8, "channels": 8},
    "cifar_densenet": {"depth": 16, "growth_rate": 4, "bottleneck": True, "compression": 0.5},
    "shake_shake": {"depth": 14, "channels": 4, "stem_channels": 4},
    "msdnet": {"layers": 5, "channels": 32, "growth_rate": 4},
    "vit_tiny": {"num_hidden_layers": 1},
}
FOLDED = {
    "cifar_resnet": 15,  # every convolution has its norm behind it
    "cifar_resnext": 13,
    "cifar_densenet": 6,  # only those within a bottleneck
    "shake_shake": 25,  # all but the two halves of a straight way, which share one
    "msdnet": 3 + 2 * (5 + 5 + 4 + 3 + 2) + 2,  # the pyramid, five layers, the end
    "vit_tiny": 0,
}
every_one = pytest.mark.parametrize("name", TINY)


def make(name: str, classes: int = 3, size: int = 32, seed: int = 0, **settings: Any) -> Classifier:
    side = ImageSize(size, size)
    plain = Preprocess(side, side, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    names = tuple(f"class {index}" for index in range(classes))
    return new_huggingface(name, classes=names, preprocess=plain, seed=seed, **settings).eval()


def pictures(n: int = 2, size: int = 32) -> Tensor:
    return torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def fill(model: torch.nn.Module) -> None:
    """Weights that two programs can write down alike."""
    for number, (name, value) in enumerate(model.state_dict().items()):
        if value.is_floating_point():
            wave = torch.sin(torch.arange(value.numel(), dtype=torch.float64) * 0.7 + number)
            wave = wave.view(value.shape)
            if value.ndim > 1:
                value.copy_(wave * value[0].numel() ** -0.5)
            else:
                scales = name.endswith(("weight", "running_var"))
                value.copy_(1 + 0.3 * wave if scales else 0.2 * wave)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("resnet20", 269_722),  # published: 0.27 M
        ("resnet56", 853_018),  # 0.85 M
        ("densenet40", 1_019_722),  # 1.0 M
        ("resnext29", 34_426_698),  # 34.4 M
        ("resnext29_16x64d", 68_155_210),  # 68.1 M
        ("shake_shake26_2x32d", 2_923_162),  # 2.9 M
        ("shake_shake26_2x96d", 26_192_922),  # 26.2 M
        ("vit_tiny", 12 * (12 * 192 * 192 + 13 * 192) + (48 + 2 + 65 + 2 + 10) * 192 + 10),
    ],
)
def test_the_weights_on_paper(name: str, count: int) -> None:
    teach_transformers()
    kind, settings = settings_of(name, 32)
    with torch.device("meta"):
        config = AutoConfig.for_model(kind, num_labels=10, **settings)
        model = AutoModelForImageClassification.from_config(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == count


# Recorded from hendrycks/robustness, old/Icons-50/models, with weights as `fill` writes them: a
# hash of the names, and the logits. Its Shake-Shake lacks the published ReLU before the mean over
# places, which was put there; its MSDNet has one block, so one head, and no transitions.
PAPERS = {
    "cifar_resnet": (
        "a1a2159af68cd597",
        [[-20.37146, -50.58418, -0.2919477], [-12.948015, -33.76659, -0.8872904]],
    ),
    "cifar_resnext": (
        "19641fb96e882484",
        [[0.4398396, 1.5175852, -0.939989], [0.4374925, 1.5146677, -0.9372652]],
    ),
    "cifar_densenet": (
        "6567a03c86468df8",
        [[0.0197934, -0.1985762, -0.2261621], [0.0212792, -0.1990447, -0.2278382]],
    ),
    "shake_shake": (
        "f1ce5966da80f3d5",
        [[-0.5751286, -3.9875493, -0.8819509], [-0.5541619, -4.0055652, -0.9102327]],
    ),
    "msdnet": (
        None,
        [
            [2.6616, 5.9811, -3.1372, -5.2534, 4.0122, 4.7136, -4.8508, -4.4172, 5.1464, 3.6622],
            [2.6244, 5.8745, -3.0862, -5.1534, 3.9483, 4.6218, -4.7750, -4.3352, 5.0600, 3.5914],
        ],
    ),
}


@pytest.mark.parametrize("name", PAPERS)
def test_logits_are_those_of_the_papers_code(name: str) -> None:
    names, logits = PAPERS[name]
    model = make(name, classes=len(logits[0]), **TINY[name])
    network = model.network.model
    fill(network)
    if names is not None:
        found = hashlib.sha256("\n".join(network.state_dict()).encode()).hexdigest()
        assert found[:16] == names
    pixels = torch.sin(torch.arange(2 * 3 * 32 * 32, dtype=torch.float64) * 0.01).float()
    with torch.inference_mode():
        found = model.network(pixels.view(2, 3, 32, 32))
    torch.testing.assert_close(found, torch.tensor(logits), atol=1e-4, rtol=1e-4)


@every_one
def test_made_saved_and_loaded_it_says_the_same(name: str, tmp_path: Path) -> None:
    new_model(name, make_dataset(), tmp_path / "net", size=64, seed=3, **TINY[name])
    loaded, made = load_model(tmp_path / "net"), make(name, 4, 64, seed=3, **TINY[name])
    pixels = pictures(size=64)
    with torch.inference_mode():
        seen = loaded.seen(pixels)
        assert torch.equal(loaded.network(seen), made.network(seen))
        assert not torch.equal(make(name, 4, 64, seed=4, **TINY[name])(seen), made(seen))
        assert made.features(pixels).shape[0] == 2


@every_one
def test_norms_are_folded_without_another_answer(name: str) -> None:
    model = make(name, **TINY[name])
    if name in PAPERS:
        fill(model.network.model)
    with torch.inference_mode():
        pairs = adjacent(model, pictures())
        assert len(pairs) == FOLDED[name]
        faster = folded(model, pictures())
        assert (faster is not model) or not pairs
        torch.testing.assert_close(faster(pictures()), model(pictures()), atol=1e-3, rtol=1e-3)


@pytest.mark.gpu
@every_one
def test_a_gpu_gives_the_same_logits(name: str) -> None:
    model = make(name, **TINY[name])
    here = model(pictures())
    with torch.backends.cudnn.flags(allow_tf32=False):
        there = model.cuda()(pictures().cuda()).cpu()
    torch.testing.assert_close(here, there, atol=1e-4, rtol=1e-4)


def test_branches_that_stochastic_depth_may_drop() -> None:
    for name, blocks in (("cifar_resnet", 6), ("cifar_resnext", 3)):
        assert len(residual_branches(make(name, **TINY[name]))) == blocks


def test_without_projections_the_straight_way_is_zeros_around_every_other_place() -> None:
    block = make("resnet20", channels=2).network.model.stage2.block1
    maps = pictures()[:, :2]
    straight = block.shortcut(maps)
    assert torch.equal(straight[:, 1:3], maps[:, :, ::2, ::2])
    assert not straight[:, 0].any()
    assert not straight[:, 3].any()


def test_shaken_branches_have_shares_of_their_own_on_the_way_back() -> None:
    # 1/4 of 8 and 3/4 of 4 are 5; the gradient 2 comes back as 2/8 and 14/8.
    first = torch.tensor([8.0], requires_grad=True)
    second = torch.tensor([4.0], requires_grad=True)
    mixed = shaken(first, second, torch.tensor(0.25), torch.tensor(0.125))
    (2 * mixed).sum().backward()
    assert mixed.item() == 5
    assert (first.grad.item(), second.grad.item()) == (0.25, 1.75)


def test_shaking_is_for_training_and_follows_the_seed() -> None:
    model = make("shake_shake", **TINY["shake_shake"])
    still = make("shake_shake", **TINY["shake_shake"], shake=False)
    assert torch.equal(model(pictures()), still(pictures()))

    def answer(network: Classifier, seed: int) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return network.train()(pictures())

    assert torch.equal(answer(model, 1), answer(model, 1))
    assert not torch.equal(answer(model, 1), answer(model, 2))
    assert torch.equal(answer(still, 1), answer(still, 2))


@pytest.mark.parametrize(
    ("name", "settings", "complaint"),
    [
        ("resnet20", {"depth": 21}, r"depth: expected 8, 14, 20, \.\.\. \(6 n \+ 2\), got 21"),
        ("resnet20", {"shortcut": "none"}, "shortcut: expected zeros or projection, got 'none'"),
        ("resnext29", {"cardinality": 0}, "cardinality: expected at least 1, got 0"),
        ("densenet40", {"compression": 0.0}, "compression: expected above 0, up to 1, got 0"),
        ("shake_shake26_2x31d", {}, "channels: expected an even number, got 31"),
        ("msdnet", {"growth_rate": 3}, "growth_rate: expected an even number from 2, got 3"),
    ],
)
def test_sizes_that_cannot_be(name: str, settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        make(name, **settings)
