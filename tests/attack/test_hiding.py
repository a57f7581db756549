"""Models that hide from an attack: each is beaten, or a flag with a name is up."""

from __future__ import annotations

import cProfile
import pstats
import sys
from functools import partial

import pytest
import torch
from torch import nn
from torch.autograd import grad as slope_of

from attack.test_attack import linear, pictures
from stockpot.attack.checks.forward_pass import in_training, optimises
from stockpot.attack.projection import norm_of
from stockpot.attack.run import attack

METHODS = {
    "apgd": {"steps": 3},
    "pgd": {"steps": 3},
    "fgsm": {},
    "fab": {"steps": 3, "targets": 2},
    "square": {"steps": 8},
    "autoattack": {"steps": 3, "queries": 8},
}
EVERY = pytest.mark.parametrize("method", METHODS)


class Says(nn.Module):
    """The same outputs for every image, with a gradient of zero."""

    def __init__(self, *outputs: float) -> None:
        super().__init__()
        self.outputs = torch.tensor(outputs)

    def forward(self, pixels):
        return self.outputs + 0 * pixels.flatten(1).sum(dim=1, keepdim=True)


@EVERY
@pytest.mark.parametrize("outputs", [[torch.nan] * 3, [torch.inf, 0, 0], [1, 0, -torch.inf]])
def test_what_is_no_number_is_no_answer(method: str, outputs: list[float]) -> None:
    images = pictures(6)
    labels = torch.zeros(6, dtype=torch.long)
    result = attack(Says(*outputs), images, labels, method=method, **METHODS[method])
    assert result.accuracy == 0
    assert not result.correct.any()
    assert result.flags.non_finite == 6
    assert any("6 images got NaN or infinite" in line for line in result.flags.warnings())


@EVERY
def test_fleeing_into_nan_is_falling(method: str) -> None:
    # Right about every image as it is, and silent about every other.
    images = pictures(6)
    known = images.clone()

    class Flees(nn.Module):
        def forward(self, pixels):
            new = (pixels[:, None] - known).abs().flatten(2).amax(dim=2).amin(dim=1) > 1e-4
            outputs = torch.tensor([1.0, 0.0, 0.0]) + pixels.flatten(1).sum(1, keepdim=True) / 100
            return torch.where(new[:, None], torch.nan, outputs)

    labels = torch.zeros(6, dtype=torch.long)
    result = attack(Flees(), images, labels, method=method, eps=0.1, **METHODS[method])
    assert result.correct.all()
    assert not result.images.isnan().any()
    if method != "fab":  # all slopes towards a class are equal here, and its walk stays put
        assert result.accuracy == 0
        assert result.flags.non_finite == 6


def test_a_slope_that_is_no_number_leads_nowhere() -> None:
    model, images = linear(3), pictures(6)

    class Torn(nn.Module):
        def forward(self, pixels):
            return model(pixels) + 0 * (pixels - pixels.detach()).norm()  # 0 / 0

    labels = model(images).argmax(dim=1)
    for method, quick in METHODS.items():
        result = attack(Torn(), images, labels, method=method, eps=1e-4, **quick)
        assert not result.images.isnan().any()
        assert result.robust.all(), method


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("norm", "eps"), [("linf", 8 / 255), ("l2", 0.5), ("l1", 2.0)])
def test_half_precision_stays_in_the_ball(dtype, norm, eps) -> None:
    images = torch.rand(8, 3, 8, 8, generator=torch.Generator().manual_seed(2)).to(dtype)
    model = linear(4, size=8).to(dtype)
    labels = model(images).argmax(dim=1)
    for each in (model, lambda pixels: model(pixels)):
        ask = {"norm": norm, "eps": eps, "method": "pgd", "steps": 3, "goal": "loss"}
        result = attack(each, images, labels, **ask)
        assert result.images.dtype == torch.float32
        moved = norm_of(norm, result.images.double() - images.double())
        assert float(moved.max()) <= eps * (1 + 1e-5)
        assert float(moved.max()) > 0.9 * eps


def test_a_model_that_mixes_precisions_gets_full_ones() -> None:
    seen = []

    class Casts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = linear(3).bfloat16()

        def forward(self, pixels):
            seen.append(pixels.dtype)
            return self.layer(pixels.bfloat16())

    images = pictures(4)
    attack(Casts(), images, torch.zeros(4, dtype=torch.long), steps=2)
    assert set(seen) == {torch.float32}


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_autoattack_says_that_classes_are_few(classes: int) -> None:
    model, images = linear(classes), pictures(4)
    labels = model(images).argmax(dim=1)
    ask = {"method": "autoattack", "steps": 2, "queries": 2, "eps": 0.001}
    assert attack(model, images, labels, **ask).flags.few_classes == (classes < 4)
    rand = attack(model, images, labels, version="rand", eot=1, **ask)
    assert rand.flags.few_classes == (classes < 3)


@EVERY
@pytest.mark.parametrize("norm", ["linf", "l1"])
def test_every_look_is_counted(method: str, norm: str) -> None:
    model, images = linear(4), pictures(12)
    labels = model(images).argmax(dim=1)
    labels[:2] = (labels[:2] + 1) % 4
    calls = 0

    def counted(pixels):
        nonlocal calls
        calls += len(pixels)
        return model(pixels)

    ask = {"norm": norm, "eps": {"linf": 0.02, "l1": 0.3}[norm], "forward": "plain", "check": False}
    result = attack(counted, images, labels, method=method, eot=3, **ask, **METHODS[method])
    assert 0 < int(result.robust.sum()) < 10, "a case that shows nothing"
    assert int(result.queries.sum()) == calls
    alone = attack(model, images, labels, method=method, **ask, **METHODS[method])
    assert torch.equal(result.queries, 3 * alone.queries)


def test_fab_averages_what_is_random() -> None:
    # The noise has a slope of its own, a hundred times the model's; its mean is nothing.
    images = pictures(20)
    model = linear(2)
    labels = model(images).argmax(dim=1)
    generator = torch.Generator().manual_seed(0)

    class Noisy(nn.Module):
        turn = 0

        def forward(self, pixels):
            self.turn += 1
            sign = 1 if self.turn % 2 else -1
            noise = torch.randn(2, 48, generator=generator) if sign > 0 else self.noise
            self.noise = noise
            return model(pixels) + 100 * sign * (pixels.flatten(1) @ noise.T)

    ask = {"method": "fab", "eps": 0.02, "steps": 10, "targets": 1}
    plain = attack(model, images, labels, **ask)
    # Draws come in pairs that cancel, so that two of them are the model itself.
    paired = attack(Noisy(), images, labels, eot=2, **ask)
    assert 3 < int(plain.robust.sum()) < 17
    assert int((paired.robust != plain.robust).sum()) <= 1


def test_modules_out_of_reach_in_training_mode_are_flagged() -> None:
    images = pictures(4)
    net = nn.Sequential(linear(3), nn.Dropout(0.0))
    labels = net(images).argmax(dim=1)

    class Hides(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = [net]  # in a list, where eval() does not find it

        def forward(self, pixels):
            return self.hidden[0](pixels)

    class Callable:
        def __init__(self) -> None:
            self.net = net

        def __call__(self, pixels):
            return self.net(pixels)

    around = {
        "lambda": lambda pixels: net(pixels),
        "partial": partial(lambda inner, pixels: inner(pixels), net),
        "method": Hides().eval().forward,
        "list": Hides().eval(),
        "object": Callable(),
        "twice": lambda pixels: around["lambda"](pixels),
    }
    for name, model in around.items():
        net.train()
        flags = attack(model, images, labels, steps=1).flags
        assert flags.training, name
        assert any("eval()" in line for line in flags.warnings())
        net.eval()
        assert not attack(model, images, labels, steps=1).flags.training, name
    net.train()
    assert not attack(net, images, labels, steps=1).flags.training  # put into evaluation mode
    assert in_training(net)


class Purifies(nn.Module):
    """Moves every image against the gradient of its own entropy before it answers."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.net, self.way = linear(3), way

    def forward(self, pixels):
        with torch.enable_grad():
            seen = pixels.detach().clone().requires_grad_()
            if self.way == "search":  # no gradient at all: this is only computing
                return self.net(pixels + 0.01 * self.net(seen).sum().sign())
            loss = torch.logsumexp(self.net(seen), dim=1).sum()
            if self.way == "grad":
                slope = slope_of(loss, seen)[0]
            elif self.way == "optimiser":
                seen.grad = torch.ones_like(seen)
                torch.optim.SGD([seen], lr=0.1).step()
                slope = seen - pixels
            else:
                loss.backward()
                slope = seen.grad
        return self.net(pixels - 0.1 * slope.detach())


@pytest.mark.parametrize("way", ["grad", "backward", "optimiser", "search"])
def test_optimisation_in_the_forward_pass_is_seen(way: str) -> None:
    images = pictures(4)
    model = Purifies(way)
    assert optimises(model, images) == (way != "search")
    labels = model(images).argmax(dim=1)
    flags = attack(model, images, labels, steps=1).flags
    assert flags.optimises == (way != "search")
    assert ("optimises" in flags.raised()) == flags.optimises


def test_who_profiles_an_attack_goes_on_afterwards() -> None:
    images, model = pictures(4), Purifies("grad")
    profile = cProfile.Profile()
    with profile:
        assert optimises(model, images)
        pictures(4)
    seen = {name for _, _, name in pstats.Stats(profile).stats}  # type: ignore[attr-defined]
    assert "pictures" in seen
    heard: list[str] = []
    sys.setprofile(lambda frame, event, argument: heard.append(frame.f_code.co_name))
    try:
        assert optimises(model, images)
        pictures(4)
    finally:
        sys.setprofile(None)
    assert "pictures" in heard


def test_a_radius_keeps_its_digits() -> None:
    model, images = linear(3), pictures(4)
    labels = model(images).argmax(dim=1)
    ask = {"method": "pgd", "steps": 2, "goal": "loss", "start": "clean", "step_size": 1.0}
    far = attack(model, images, labels, eps=8 / 255, **ask)
    same = attack(model, images, labels, eps="8/255", **ask)
    assert torch.equal(far.images, same.images)
    assert float((far.images - images).abs().max()) == pytest.approx(8 / 255, rel=1e-5)
