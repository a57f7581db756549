"""Test-time adaptation: worked examples, what is left after a reset, and who is refused."""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pico import make_classifier
from stockpot.audit.run import audit
from stockpot.defend import defences
from stockpot.defend.adapt.adapting import Adapting
from stockpot.defend.adapt.sar import early
from stockpot.defend.adapt.views import random_view, turned_hue
from stockpot.defend.defended import behind, defend
from stockpot.errors import BadParameterError, UserError
from stockpot.harden.record import training_defence

WEIGHTED = ["tent", "sar", "eata", "cotta", "roid"]
# So that a step is more than rounding, on a network that is unsure of everything.
EAGER: dict[str, dict[str, Any]] = {
    "bn": {},
    "tent": {"lr": 0.1},
    "sar": {"lr": 0.1, "margin": 2},
    "eata": {"lr": 0.1, "margin": 2, "similarity": 2},
    "cotta": {"lr": 0.1, "views": 2, "restore": 0.3},
    "roid": {"lr": 0.1},
}


class Means(nn.Module):
    """Two channels, normalised; the mean of each is the logit of a class."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, pixels: Tensor) -> Tensor:
        found: Tensor = self.norm(pixels[:, :2]).mean((2, 3))
        return found


def two_channels(norm: nn.Module | None = None) -> Any:
    if norm is None:
        norm = nn.BatchNorm2d(2)
        norm.running_mean.copy_(torch.tensor([0.2, 0.4]))  # type: ignore[union-attr]
        norm.running_var.copy_(torch.tensor([0.25, 0.04]))  # type: ignore[union-attr]
    return make_classifier(Means(norm), ("a", "b"), 4).eval()


def flat(*levels: tuple[float, float]) -> Tensor:
    """Pictures of one colour each."""
    colours = torch.tensor([(*level, 0.0) for level in levels]).float()
    return colours[:, :, None, None].expand(-1, -1, 4, 4).clone()


def small() -> Any:
    torch.manual_seed(0)
    network = nn.Sequential(
        *(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
        *(nn.Flatten(), nn.Dropout(0.5), nn.Linear(4, 4)),
    )
    return make_classifier(network, size=8).eval()


def batches(count: int = 3, size: int = 6) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(size, 3, 8, 8, generator=generator) for _ in range(count)]


def test_statistics_are_mixed_by_how_many_pictures_each_side_has() -> None:
    # Two pictures against a prior of 6: a quarter of the weight. Channel 1: mean .5 and variance
    # .09 in the batch, so .75 * .2 + .25 * .5 = .275 and .75 * .25 + .25 * .09 = .21.
    model = defend(two_channels(), "bn", prior=6)
    found = model(flat((0.2, 0.1), (0.8, 0.3)))
    first = (np.array([0.2, 0.8]) - 0.275) / math.sqrt(0.21 + 1e-5)
    second = (np.array([0.1, 0.3]) - 0.35) / math.sqrt(0.0325 + 1e-5)
    assert np.allclose(found.numpy(), np.stack([first, second], 1), atol=1e-6)
    alone = defend(two_channels(), "bn", prior=0)(flat((0.2, 0.1), (0.8, 0.3)))
    assert np.allclose(alone.numpy(), [[-1, -1], [1, 1]], atol=1e-3)


def test_tent_takes_the_gradient_step_of_the_entropy() -> None:
    model = defend(two_channels(), "tent", lr=0.5, optimiser="sgd")
    levels = np.array([[0.2, 0.1], [0.8, 0.2], [0.5, 0.9]])
    unit = (levels - levels.mean(0)) / np.sqrt(levels.var(0) + 1e-5)
    shares = np.exp(unit) / np.exp(unit).sum(1, keepdims=True)
    nats = -(shares * np.log(shares)).sum(1, keepdims=True)
    slope = -shares * (np.log(shares) + nats)  # of the entropy, by each logit
    found = model(flat(*map(tuple, levels)))  # type: ignore[arg-type]
    # The answers are those before the step; the scale moves by its slope, the shift likewise.
    assert np.allclose(found.numpy(), unit, atol=1e-5)
    layer = model.inner.network.norm.layer  # type: ignore[attr-defined]
    scale = 1 - 0.5 * (slope * unit).mean(0)
    assert np.allclose(layer.weight.detach().numpy(), scale, atol=1e-5)
    assert np.allclose(layer.bias.detach().numpy(), -0.5 * slope.mean(0), atol=1e-5)


@pytest.mark.parametrize("name", EAGER)
def test_a_reset_leaves_nothing_behind(name: str) -> None:
    given = small()
    kept = deepcopy(given.state_dict())
    model = defend(given, name, **EAGER[name])
    assert isinstance(model, Adapting)
    whole = deepcopy(model.inner.state_dict())
    first = [model(batch) for batch in batches()]
    moved = any(
        not torch.equal(whole[key], value) for key, value in model.inner.state_dict().items()
    )
    assert moved == (name in WEIGHTED)
    model.reset()
    assert all(torch.equal(whole[key], value) for key, value in model.inner.state_dict().items())
    # Nor is anything remembered beside the weights: the same stream has the same answers.
    assert all(torch.equal(a, model(b)) for a, b in zip(first, batches(), strict=True))
    assert all(torch.equal(kept[key], value) for key, value in given.state_dict().items())
    # A model that is moved begins anew: no optimiser stays behind with other tensors.
    moved_on = model.double()(batches()[0].double())
    assert torch.allclose(moved_on, first[0].double(), atol=1e-4)
    model.reset()
    shown = batches()[0].double()
    assert torch.allclose(model.held()(shown), given.double()(shown), atol=1e-6)


@pytest.mark.parametrize("name", EAGER)
def test_a_held_model_answers_each_picture_for_itself(name: str) -> None:
    model = defend(small(), name, **EAGER[name])
    assert isinstance(model, Adapting)
    for batch in batches():
        model(batch)
    held, shown = model.held(), batches()[-1]
    with torch.inference_mode():
        together = held(shown)
        assert torch.allclose(held(shown[:1]), together[:1], atol=1e-5)
        assert torch.equal(held(shown), together)
        # The statistics are those of the last batch, under the weights that it has left.
        assert torch.allclose(together, model.learner.model(shown), atol=1e-5)


@pytest.mark.parametrize("name", EAGER)
def test_one_picture_and_no_number_are_survived(name: str) -> None:
    class Breaks(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, pixels: Tensor) -> Tensor:
            found: Tensor = self.inner(pixels)
            return found * (float("nan") if float(pixels.max()) == 0 else 1.0)

    plain = small()
    model = defend(make_classifier(Breaks(plain.network), size=8).eval(), name, **EAGER[name])
    assert isinstance(model, Adapting)
    before = model(batches()[0][:1])
    assert before.isfinite().all()
    weights = deepcopy(model.inner.state_dict())
    assert model(torch.zeros(2, 3, 8, 8)).isnan().all()
    assert all(torch.equal(weights[key], value) for key, value in model.inner.state_dict().items())
    assert model(batches()[1]).isfinite().all()
    assert model.learner.skipped == (name in ("tent", "cotta", "roid"))


@pytest.mark.parametrize("name", WEIGHTED)
def test_networks_without_batch_norm_adapt_too(name: str) -> None:
    model = defend(two_channels(nn.GroupNorm(1, 2)), name, **EAGER[name])
    shown = flat((0.2, 0.1), (0.8, 0.2), (0.5, 0.9))
    assert torch.allclose(model(shown), two_channels(nn.GroupNorm(1, 2))(shown), atol=2)
    layer = model.inner.network.norm  # type: ignore[attr-defined]
    assert not torch.equal(layer.weight, torch.ones(2))


def test_models_that_have_nothing_to_adapt_are_refused() -> None:
    with pytest.raises(UserError, match="bn: expected a model with BatchNorm layers, got none in"):
        defend(two_channels(nn.GroupNorm(1, 2)), "bn")
    bare = make_classifier(nn.Sequential(nn.Flatten(), nn.Linear(48, 2)), ("a", "b"), 4)
    for name in ("tent", "sar", "eata", "roid"):
        with pytest.raises(UserError, match=f"{name}: expected a model with normalisation layers"):
            defend(bare, name)


def test_adaptation_is_the_last_defence_and_no_part_of_training() -> None:
    stacked = behind(small(), {"clahe": {"tiles": 2}, "tent": {}})
    assert isinstance(stacked, Adapting)
    assert "clahe" in stacked.origin.source
    with pytest.raises(BadParameterError, match="expected tent, which adapts, as the last"):
        behind(small(), ["tent", "clahe"])
    with pytest.raises(BadParameterError, match="tent changes the model by what it is asked"):
        training_defence(small(), "tent")
    with pytest.raises(BadParameterError, match="without a defence to train"):
        training_defence(stacked, None)


def test_published_settings() -> None:
    def settings(name: str, **params: Any) -> dict[str, Any]:
        return defences.get(name).validate(params)

    assert settings("tent")["lr"] == 1e-3
    assert settings("tent", preset="imagenet")["optimiser"] == "sgd"
    assert settings("sar") | {"margin": 0.4, "sharpness": 0.05, "recovery": 0.2} == settings("sar")
    assert settings("eata")["similarity"] == 0.05
    assert settings("eata", preset="cifar")["fisher"] == 1
    assert settings("cotta") | {"momentum": 0.999, "restore": 0.01, "views": 32} == settings(
        "cotta"
    )
    assert settings("roid")["ensembling"] == 0.99


def test_sar_leaves_the_last_quarter_alone() -> None:
    def names(*found: str) -> dict[str, Any]:
        return dict.fromkeys(f"{name}.weight" for name in found)

    resnet = names(
        "bn1", *(f"layer{stage}.{block}.bn1" for stage in (1, 2, 3, 4) for block in (0, 1))
    )
    assert set(resnet) - set(early(resnet)) == set(names("layer4.0.bn1", "layer4.1.bn1"))
    vit = names("pre", *(f"blocks.{block}.norm1" for block in range(12)), "norm")
    left = names(*(f"blocks.{block}.norm1" for block in (9, 10, 11)), "norm")
    assert set(vit) - set(early(vit)) == set(left)
    wide = names(
        "bn1", *(f"block{stage}.layer.{n}.bn1" for stage in (1, 2, 3) for n in (0, 1)), "bn2"
    )
    assert early(wide) == wide


def test_an_audit_says_that_the_model_changes_while_it_is_asked() -> None:
    images = torch.cat(batches(4, 8))
    model = defend(small(), "tent", lr=0.1)
    found = audit(model, images, torch.zeros(len(images), dtype=torch.long), eps=0.01, budget=150)
    assert found.verdict == "convicted"
    assert found.finding("stateless").verdict == "convicted"
    assert found.finding("only_looks").verdict == "suspicious"


def test_views_of_chance() -> None:
    pixels = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    draws = [torch.Generator().manual_seed(seed) for seed in (3, 3, 4)]
    made = [random_view(pixels, draw, soften=True, padding="border") for draw in draws]
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])
    assert 0 <= float(made[0].min()) <= float(made[0].max()) <= 1
    # A third of the circle takes red to green and green to blue.
    red = torch.tensor([0.8, 0.2, 0.2]).view(1, 3, 1, 1)
    assert torch.allclose(
        turned_hue(red, 1 / 3).flatten(), torch.tensor([0.2, 0.8, 0.2]), atol=1e-6
    )
    assert torch.allclose(turned_hue(pixels, 1.0), pixels, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("name", EAGER)
def test_a_gpu_adapts_as_a_cpu_does(name: str) -> None:
    found = {}
    for device in ("cpu", "cuda"):
        model = defend(small().to(device), name, **EAGER[name])
        assert isinstance(model, Adapting)
        answers = [model(batch.to(device)) for batch in batches()]
        model.reset()
        again = [model(batch.to(device)) for batch in batches()]
        assert all(torch.equal(*pair) for pair in zip(answers, again, strict=True))
        held = model.held()(batches()[0].to(device))
        found[device] = torch.cat([*answers, held]).cpu()
    assert torch.allclose(found["cpu"], found["cuda"], atol=1e-3)
