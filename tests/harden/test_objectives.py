"""Adversarial objectives against what they are defined to be."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps
from torch import nn

from pico import make_classifier, make_dataset
from stockpot.attack.directions import random_start
from stockpot.attack.projection import norm_of
from stockpot.attack.run import attack
from stockpot.attack.threat import L1, L2, Linf
from stockpot.corrupt import BENCHMARK
from stockpot.datasets.dataset import Dataset, TensorImages, pixel_fingerprint
from stockpot.errors import UserError
from stockpot.harden import hardeners
from stockpot.harden.adversarial.worst import worst
from stockpot.harden.augmentation.augmix import disagreement, mixture
from stockpot.harden.augmentation.simple_changes import CHANGES, equalize, rotate, translate_x
from stockpot.harden.loop import Step, train
from stockpot.harden.record import split_params

NORMS = {"norms": "linf,l2,l1", "eps": "0.02,0.2,1", "steps": 4}


def network() -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(784, 4)
    )
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) / 4
    return model


def make_step(seed: int = 0, n: int = 12) -> Step:
    generator = torch.Generator().manual_seed(9)
    pixels = torch.rand(n, 3, 16, 16, generator=generator)
    labels = torch.randint(0, 4, (n,), generator=generator)
    model = make_classifier(network()).eval()  # evaluation mode: losses can be compared
    return Step(model, pixels, labels, torch.Generator().manual_seed(seed), 0)


def loss_on(step: Step, images: torch.Tensor) -> float:
    with torch.no_grad():
        return float(F.cross_entropy(step.model(images), step.labels))


@pytest.mark.parametrize("ball", [Linf(0.02), L2(0.2), L1(1)], ids=str)
def test_adversarial_trains_on_the_worst_image(ball) -> None:
    step = make_step()
    found = worst(step, ball, 4)
    assert float(norm_of(ball.norm, found.images - step.pixels).max()) <= ball.radius * (1 + 1e-5)
    objective = hardeners.get("adversarial")(norm=ball.norm, eps=ball.eps, steps=4)
    loss = float(objective(make_step()).detach())
    assert loss == pytest.approx(loss_on(step, found.images), rel=1e-5)
    assert loss > loss_on(step, step.pixels)


def test_radius_zero_is_nominal_training() -> None:
    step = make_step()
    expected = loss_on(step, step.pixels)
    assert float(hardeners.get("adversarial")(eps=0)(make_step())) == pytest.approx(expected)
    assert float(hardeners.get("trades")(eps=0)(make_step())) == pytest.approx(expected, rel=1e-5)


def test_max_is_at_least_every_norm_and_avg_their_mean() -> None:
    step = make_step()
    single = [loss_on(step, worst(step, b, 4).images) for b in (Linf(0.02), L2(0.2), L1(1))]
    assert float(hardeners.get("max")(**NORMS)(make_step())) >= max(single) - 1e-5
    average = float(hardeners.get("avg")(**NORMS)(make_step()))
    assert average == pytest.approx(sum(single) / 3, rel=1e-5)
    drawn = {round(float(hardeners.get("sat")(**NORMS)(make_step(seed))), 4) for seed in range(12)}
    assert drawn == {round(value, 4) for value in single}


def test_each_norm_has_its_own_number_of_steps() -> None:
    step = make_step()
    balls = ((Linf(0.02), 1), (L2(0.2), 4), (L1(1), 7))
    single = [loss_on(step, worst(step, *ball).images) for ball in balls]
    for steps in ("1,4,7", [1, 4, 7]):
        params = {**NORMS, "steps": steps}
        average = float(hardeners.get("avg")(**params)(make_step()))
        assert average == pytest.approx(sum(single) / 3, rel=1e-5)
        drawn = {round(float(hardeners.get("sat")(**params)(make_step(i))), 4) for i in range(12)}
        assert drawn == {round(value, 4) for value in single}
        assert float(hardeners.get("max")(**params)(make_step())) >= max(single) - 1e-5
    for wrong in ("1,4", "1,4,x", [0, 1, 2], 0, 2.5):
        with pytest.raises(UserError, match="steps: expected"):
            hardeners.get("max")(**{**NORMS, "steps": wrong})


def test_msd_is_no_weaker_than_its_steps_alone() -> None:
    step = make_step()
    union = float(hardeners.get("msd")(**NORMS)(make_step()))
    assert union > loss_on(step, step.pixels)
    alone = hardeners.get("msd")(norms="linf", eps="0.02", steps=4)
    assert union >= 0.98 * float(alone(make_step()))


def test_eat_draws_by_robust_error() -> None:
    objective = hardeners.get("eat")(norms="linf,l1", eps="0.02,1", steps=2)
    assert objective.chances() == [0.5, 0.5]
    objective.load_state_dict({"seen": [100, 0], "fallen": [90, 0]})
    assert objective.chances() == [0.5, 0.5]  # until every norm has been seen
    objective.load_state_dict({"seen": [100, 50], "fallen": [60, 10]})
    assert objective.chances() == pytest.approx([0.75, 0.25])
    assert [objective.choose(value) for value in (0.0, 0.74, 0.76, 0.999)] == [0, 0, 1, 1]
    before = sum(objective.seen)
    objective(make_step())
    assert sum(objective.seen) == before + 12


def test_soft_targets_reach_the_attack() -> None:
    loss = hardeners.get("adversarial")(label_smoothing=0.1, mixup=1.0, steps=2)(make_step())
    assert torch.isfinite(loss)
    with pytest.raises(UserError, match="label_smoothing: input should be less than 1"):
        hardeners.get("adversarial")(label_smoothing=1.0)


class Normed(nn.Module):
    """Batch norm, then layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.ln, self.head = nn.LayerNorm(784), nn.Linear(784, 4)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.ln(self.bn(self.conv(pixels)).relu().flatten(1)))
        return logits


def advprop_step(training: bool) -> Step:
    step = make_step()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = make_classifier(Normed()).train(training)
    return Step(model, step.pixels, step.labels, step.generator, 0)


def test_advprop_attacks_its_auxiliary_norms_towards_other_classes() -> None:
    """Against PGD written out here, on a network whose own norms are the auxiliary ones."""
    step = advprop_step(training=True)
    objective = hardeners.get("advprop")()
    objective.begin(step.model, make_dataset(), None)
    other = copy.deepcopy(step.model).eval()
    with torch.no_grad():
        for name, module in other.named_modules():
            if isinstance(module, nn.BatchNorm2d | nn.LayerNorm):
                module.weight.copy_(torch.linspace(-1.5, 1.5, module.weight.numel()))
                objective.norms.load_state_dict(
                    objective.norms.state_dict()
                    | {f"{name}.{k}": v for k, v in module.state_dict().items()}
                )
    draws = torch.Generator().manual_seed(0)
    seeds = torch.randint(0, 2**62, (12,), generator=draws)
    targets = (step.labels + torch.randint(1, 4, (12,), generator=draws)) % 4
    assert not (targets == step.labels).any()
    point = random_start("linf", step.pixels, seeds, 4 / 255, 1, 0)
    first = float(F.cross_entropy(other(point), targets))
    for _ in range(5):
        point = point.detach().requires_grad_()
        F.cross_entropy(other(point), targets).backward()
        moved = point.detach() - point.grad.sign() / 255
        point = moved.clamp(step.pixels - 4 / 255, step.pixels + 4 / 255).clamp(0, 1)
    assert float(F.cross_entropy(other(point), targets)) < first
    with objective.norms.in_place():
        found = objective.attack(step)
    assert float((found - point).abs().gt(1e-5).float().mean()) < 0.01  # signs of tiny slopes


def test_advprop_trains_norms_of_its_own_and_saves_the_main_ones() -> None:
    step = advprop_step(training=True)
    clean = copy.deepcopy(step.model)
    objective = hardeners.get("advprop")(steps=1)
    objective.begin(step.model, make_dataset(), None)
    names = list(step.model.state_dict())
    objective(step).backward()
    clean(step.pixels)
    assert list(step.model.state_dict()) == names
    # Of the model's statistics only the clean images know.
    assert torch.equal(step.model.network.bn.running_mean, clean.network.bn.running_mean)
    other = objective.norms.state_dict()
    assert not torch.equal(other["network.bn.running_mean"], clean.network.bn.running_mean)
    assert all(p.grad is not None for p in objective.parameters())
    assert len(objective.parameters()) == 4  # scales and offsets of both kinds of norm
    before = objective.parameters()[0].clone()
    train(step.model, make_dataset(), objective, epochs=1, batch_size=8, lr=0.1)
    assert not torch.equal(objective.parameters()[0], before)
    assert not torch.equal(objective.parameters()[0], step.model.network.bn.weight)
    with pytest.raises(UserError, match="has no norms"):
        hardeners.get("advprop")()(
            Step(
                make_classifier(nn.Sequential(nn.Flatten(), nn.Linear(768, 4))),
                step.pixels,
                step.labels,
                step.generator,
                0,
            )
        )


def test_augmix_uses_no_benchmark_corruption() -> None:
    assert not set(CHANGES) & set(BENCHMARK)
    pixels = torch.rand(16, 3, 16, 20)
    mixed = mixture(pixels, torch.Generator().manual_seed(0), 3.0, 3, 0, 1.0)
    assert mixed.shape == pixels.shape
    assert 0 <= float(mixed.min()) <= float(mixed.max()) <= 1 + 1e-6
    same = [torch.zeros(5, 3), torch.zeros(5, 3)]
    assert float(disagreement(same)) == pytest.approx(0, abs=1e-6)
    sure = [torch.tensor([[50.0, 0.0]]), torch.tensor([[0.0, 50.0]])]
    assert float(disagreement(sure)) == pytest.approx(0.6931, abs=1e-3)  # log 2, the largest


def test_simple_changes_by_closed_forms() -> None:
    large = torch.randint(20, 200, (1, 3, 96, 96), generator=torch.Generator().manual_seed(0))
    ours = equalize(large / 255, torch.zeros(1), torch.ones(1))[0].permute(1, 2, 0) * 255
    picture = Image.fromarray(large[0].permute(1, 2, 0).byte().numpy())
    theirs = torch.from_numpy(np.asarray(ImageOps.equalize(picture)).copy()).float()
    # Pillow truncates its step to 35 of 35.9 pixels, which stretches its levels by 3 %.
    assert float((ours - theirs).abs().max()) < 8
    pixels = torch.randint(20, 200, (2, 3, 16, 16), generator=torch.Generator().manual_seed(0))
    one = torch.ones(2)
    full = rotate(pixels / 255, one * 3, one)  # 90 degrees
    torch.testing.assert_close(full, torch.rot90(pixels / 255, 1, (2, 3)), atol=1e-4, rtol=0)
    shifted = translate_x(pixels / 255, one * 3 / 8, one)  # an eighth of the width: two columns
    torch.testing.assert_close(shifted[..., :-2], (pixels / 255)[..., 2:], atol=1e-4, rtol=0)


def two_bars(n: int = 160) -> Dataset:
    """A strong cue of one bright pixel row each, and a weak cue spread over all pixels."""
    generator = torch.Generator().manual_seed(2)
    labels = torch.arange(n) % 2
    pixels = 128 + 12 * torch.randn(n, 3, 16, 16, generator=generator)
    pixels += 4 * (2 * labels - 1)[:, None, None, None]
    pixels[:, :, 8, :] += 60 * (2 * labels - 1)[:, None, None]
    images = pixels.clamp(0, 255).to(torch.uint8)
    names = ("dark", "light")
    return Dataset(
        "bars",
        "train",
        TensorImages(images),
        labels,
        names,
        pixel_fingerprint(images, labels, names),
    )


def test_adversarial_training_raises_robust_accuracy() -> None:
    data = two_bars()
    robust = {}
    for method, params in {"nominal": {}, "adversarial": {"eps": "24/255", "steps": 5}}.items():
        model = make_classifier(
            nn.Sequential(nn.Flatten(), nn.Linear(768, 2)), classes=("dark", "light")
        )
        generator = torch.Generator().manual_seed(0)
        for parameter in model.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator) / 30
        objective = hardeners.get(method)(**params)
        train(model, data, objective, epochs=8, batch_size=32, lr=0.01, augmentations=())
        pixels = data.images.pixels
        robust[method] = attack(model, pixels, data.labels, eps="24/255", steps=10).accuracy
    assert robust["adversarial"] > robust["nominal"] + 0.2


@pytest.mark.parametrize("method", ["avg", "eat", "max", "msd", "sat"])
def test_norms_may_come_as_lists_or_as_one_text(method: str) -> None:
    # The command line splits at commas, so that `-p norms=linf,l1 -p eps=8/255,12` gives lists.
    for norms, eps in (("linf,l1", "8/255,12"), (["linf", "l1"], ["8/255", 12])):
        own, _ = split_params(method, {"norms": norms, "eps": eps, "steps": 1})
        assert hardeners.get(method)(**own) is not None
    with pytest.raises(UserError, match="one eps for each norm"):
        hardeners.get(method)(norms="linf,l1", eps="8/255")
