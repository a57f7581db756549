"""The audit: honest models are cleared, each cheat of the gallery is convicted, by stated rules."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import nn

import stockpot
from attack.test_attack import linear, pictures
from oracles.attack_reference import load_images, load_model
from stockpot.attack.run import attack
from stockpot.attack.straight_through import straight_through
from stockpot.audit.judgement import chance, judged, lower
from stockpot.audit.run import Audit, audit
from stockpot.defend.clahe import equalise_colour
from stockpot.errors import UserError
from trust import cheats

EPS, BUDGET, COUNT = 0.02, 150, 32
PICTURES = torch.randint(
    0, 256, (COUNT, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
)


def network() -> nn.Module:
    """Honest, with weights that nobody trained; it is right by definition."""
    generator = torch.Generator().manual_seed(1)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 5)
    ).eval()
    with torch.no_grad():
        for weight in net.parameters():
            size = weight[0].numel() ** -0.5
            weight.copy_(size * (2 * torch.rand(weight.shape, generator=generator) - 1))
        net[3].bias -= net(PICTURES / 255).mean(dim=0)
    return net


def answers(model: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(PICTURES / 255).argmax(dim=1)


def audited(model, labels: torch.Tensor, **options: object) -> Audit:
    return audit(model, PICTURES, labels, **{"eps": EPS, "budget": BUDGET, **options})


def against(found: Audit) -> set[str]:
    return {each.name for each in found.findings if each.verdict == "convicted"}


BEATEN = {
    "rounds": (cheats.Rounds, "gradient_exists"),
    "saturates": (cheats.Saturates, "gradient_exists"),
    "squashes features": (cheats.SquashesFeatures, "gradient_exists"),
    "temperature": (cheats.Heats, "loss_alive"),
    "temperature, softmax": (cheats.HeatsSoftmax, "gradient_exists"),
    "detaches": (cheats.Detaches, "gradient_exists"),
    "throws slopes": (cheats.ThrowsSlopes, "gradient_repeats"),
}
FLAGGED = {
    "shakes": (cheats.Shakes, "same_answers"),
    "says nothing": (cheats.SaysNothing, "finite"),
    "counts calls": (cheats.Counts, "stateless"),
    "knows the order": (lambda net: cheats.KnowsTheOrder(net, answers(net)), "same_answers"),
    "knows by heart": (
        lambda net: cheats.KnowsByHeart(net, PICTURES / 255, answers(net)),
        "one_level",
    ),
}


@pytest.mark.parametrize("cheat", BEATEN)
def test_hidden_gradients_are_found_and_the_answer_is_the_honest_one(cheat: str) -> None:
    net = network()
    labels = answers(net)
    wrap, check = BEATEN[cheat]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        plain = attack(audit_safe(wrap(net)), PICTURES, labels, eps=EPS, steps=10)
        found = audited(wrap(net), labels)
    truth = honest_count()
    assert int(plain.robust.sum()) > truth + 5, "no cheat at all"
    assert found.verdict == "convicted"
    assert check in against(found)
    slack = 8 if cheat == "temperature, softmax" else 1  # ties between classes say little
    assert truth <= int(found.robust.sum()) <= truth + slack


@cache
def honest_count() -> int:
    """What AutoAttack leaves of the network that all cheats hide."""
    net = network()
    ask = {"method": "autoattack", "steps": 20, "targets": 4, "queries": 100, "forward": "plain"}
    return int(attack(net, PICTURES, answers(net), eps=EPS, **ask).robust.sum())


def audit_safe(model: nn.Module):
    """The model as a plain attack can run it at all: detached outputs have a slope of zero."""

    def run(pixels):
        outputs = model(pixels)
        return outputs if outputs.requires_grad else outputs + 0 * pixels.sum()

    return run


@pytest.mark.parametrize("cheat", FLAGGED)
def test_what_no_attack_can_judge_is_flagged(cheat: str) -> None:
    net = network()
    wrap, check = FLAGGED[cheat]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        found = audited(wrap(net), answers(net))
    assert found.verdict == "convicted"
    assert check in against(found)


def test_a_memory_is_found_by_asking_in_another_order() -> None:
    net = network()
    # One picture at a time is compared with all that were seen, so there are few of them.
    rows = slice(0, 6)
    model = cheats.Remembers(net, reach=0.1)
    found = audit(model, PICTURES[rows], answers(net)[rows], eps=EPS, budget=BUDGET)
    assert found.finding("stateless").verdict == "convicted"
    assert int(found.robust.sum()) == 6, "it withstands every search, and is caught all the same"


@pytest.mark.parametrize("name", ["robust", "nominal"])
def test_honest_networks_are_cleared(name: str) -> None:
    images, labels = load_images(50)
    found = audit(load_model(name), images, labels, eps="8/255", budget=150)
    assert found.verdict == "cleared", [f for f in found.findings if f.verdict != "cleared"]
    assert found.queries <= 150 * 50
    assert [point.standing for point in found.by_eps] == sorted(
        (point.standing for point in found.by_eps), reverse=True
    )
    assert found.by_eps[-1].standing == 0
    # AutoAttack's own program leaves 31 of 100 images of the robust one, and none of the other.
    recorded = {"robust": 31 / 100, "nominal": 0.0}[name]
    assert recorded - 0.08 <= int(found.robust.sum()) / 50 <= recorded + 0.08


@pytest.mark.parametrize(("norm", "eps"), [("linf", 0.02), ("l2", 0.1), ("l1", 0.25)])
def test_a_linear_model_is_cleared_and_falls_where_its_distance_says(norm, eps) -> None:
    model, images = linear(), pictures()
    with torch.no_grad():
        logits = model(images)
    weight = model[1].weight[0] - model[1].weight[1]
    dual = {"linf": 1.0, "l2": 2.0, "l1": torch.inf}[norm]
    distance = (logits[:, 0] - logits[:, 1]).abs() / weight.norm(p=dual)
    found = audit(model, images, logits.argmax(dim=1), norm=norm, eps=eps, budget=BUDGET)
    assert found.verdict == "cleared", [f for f in found.findings if f.verdict != "cleared"]
    clear = (distance - eps).abs() > 0.15 * eps
    assert torch.equal(found.robust[clear], (distance > eps)[clear])


def test_a_plain_twin_gives_a_cheat_away() -> None:
    net = network()
    labels = answers(net)
    found = audited(cheats.Detaches(net), labels, twin=net)
    assert found.finding("twin").verdict == "convicted"
    assert audited(net, labels, twin=net).finding("twin").verdict == "cleared"


def test_few_images_clear_nobody() -> None:
    net = network()
    found = audit(net, PICTURES[:8], answers(net)[:8], eps=EPS, budget=BUDGET)
    assert found.verdict == "suspicious"
    assert found.finding("enough_images").count == 12
    with pytest.raises(UserError, match="budget"):
        audited(net, answers(net), budget=20)


def test_half_precision_and_strange_outputs() -> None:
    net = network()
    found = audited(network().bfloat16(), answers(net))
    assert found.verdict == "cleared", [f for f in found.findings if f.verdict != "cleared"]
    assert int(found.correct.sum()) > 25
    with pytest.raises(UserError, match="logits"):
        audited(net, answers(net) + 10)
    with pytest.raises(UserError, match="radius of 0"):
        audited(net, answers(net), eps=0)


def test_probabilities_and_training_mode_raise_suspicion() -> None:
    net = network()
    labels = answers(net)
    for model, check in (
        (lambda pixels: net(pixels).softmax(dim=1), "logits"),
        (nn.Sequential(net, Trains()), "evaluating"),
    ):
        found = audited(model, labels)
        assert found.finding(check).verdict == "suspicious"


class Trains(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = [nn.Identity()]  # out of reach of eval()

    def forward(self, outputs):
        return self.hidden[0](outputs)


def test_the_rule_is_the_exact_binomial() -> None:
    # By hand: 1 - 0.95^10 - 10 * 0.05 * 0.95^9 - 45 * 0.05^2 * 0.95^8.
    expected = 1 - 0.95**10 - 10 * 0.05 * 0.95**9 - 45 * 0.05**2 * 0.95**8
    assert chance(3, 10, 0.05) == pytest.approx(expected)
    assert chance(0, 10, 0.05) == pytest.approx(1)
    assert lower(10, 10) == pytest.approx(0.01 ** (1 / 10), abs=1e-6)
    assert lower(0, 10) == 0
    verdicts = [judged("x", count, 64, "").verdict for count in range(12)]
    assert verdicts == ["cleared"] * 4 + ["suspicious"] * 5 + ["convicted"] * 3


def test_straight_through_changes_gradients_and_no_answer() -> None:
    net = network()
    pixels = (PICTURES[:4] / 255).requires_grad_()
    model = cheats.Rounds(net)
    assert torch.equal(straight_through(model)(pixels), model(pixels))
    (slope,) = torch.autograd.grad(straight_through(model)(pixels)[:, 0].sum(), pixels)
    (honest,) = torch.autograd.grad(net(pixels)[:, 0].sum(), pixels)
    torch.testing.assert_close(slope, honest)
    (dead,) = torch.autograd.grad(model(pixels)[:, 0].sum(), pixels)
    assert not dead.any()


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_model_that_looks_up_levels_is_audited(share: float) -> None:
    # Neither an index nor the bits of a number may be a float that stands for it.
    net = network()
    table = torch.linspace(0, 1, 256)

    def model(pixels: torch.Tensor) -> torch.Tensor:
        levels = (pixels * 255).round().long()
        seen = torch.where((levels & 1) == 2, 1 - table[levels], table[levels])
        return net(seen * (1 - share) + pixels * share)

    pixels = (PICTURES[:6] / 255).requires_grad_()
    outputs = straight_through(model)(pixels)
    assert torch.equal(outputs, model(pixels))
    if share:
        (slope,) = torch.autograd.grad(outputs[:, 0].sum(), pixels)
        (own,) = torch.autograd.grad(model(pixels)[:, 0].sum(), pixels)
        torch.testing.assert_close(slope, own)
    assert audited(model, answers(model)).robust.shape == (COUNT,)


def test_clahe_is_audited() -> None:
    net = network()

    def model(pixels: torch.Tensor) -> torch.Tensor:
        return net(equalise_colour(pixels, 2.0, 2))

    assert audited(model, answers(model)).findings


def test_the_room_is_a_verb() -> None:
    net = network()
    assert stockpot.audit(net, PICTURES, answers(net), eps=EPS, budget=BUDGET).verdict == "cleared"
