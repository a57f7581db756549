"""Choosing among epochs: by accuracy, or by robust accuracy."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import stockpot
from pico import ReadsLabel, make_classifier, make_dataset
from stockpot.attack.directions import steepest
from stockpot.attack.projection import project
from stockpot.attack.threat import L1, Linf, Threats
from stockpot.errors import UserError
from stockpot.harden import hardeners
from stockpot.harden.loop import Step, train
from stockpot.harden.record import hardening_record
from stockpot.harden.selection import (
    accuracy,
    deciding,
    hold_out,
    parse_selection,
    robust_accuracy,
    scores,
)


class Gentle(ReadsLabel):
    """The same rule with logits that leave a gradient."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return super().forward(pixels) / 20


def test_texts_name_threats() -> None:
    assert parse_selection("accuracy") is None
    assert parse_selection("linf:8/255, l1:12") == Threats((Linf("8/255"), L1("12")))
    with pytest.raises(UserError, match="linf:8/255"):
        parse_selection("robust")
    with pytest.raises(UserError, match="norm"):
        parse_selection("l7:1")


def test_robust_accuracy_of_a_rule_follows_its_margin() -> None:
    # The rule reads grey levels 40 apart: changes below 20 levels never matter, above they do.
    model, data = make_classifier(Gentle(4)), make_dataset()
    assert accuracy(model, data) == 1
    assert robust_accuracy(model, data, Threats((Linf("19/255"),))) == 1
    assert robust_accuracy(model, data, Threats((Linf("22/255"),))) < 0.5
    found = scores(model, data, "linf:22/255")
    assert deciding(found) == found["robust"] < found["accuracy"] == deciding({"accuracy": 1.0})


class Fading(nn.Module):
    """Right at first; a parameter that training raises makes it wrong on attacked images only."""

    def __init__(self) -> None:
        super().__init__()
        self.rule = Gentle(4)
        self.rule.requires_grad_(False)
        self.shift = nn.Parameter(torch.zeros(()))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.rule(pixels + self.shift)


def test_the_most_robust_epoch_is_kept() -> None:
    model, data = make_classifier(Fading()), make_dataset()
    seen: list[dict[str, float]] = []
    train(
        model, data, lambda step: -step.model.network.shift,  # drifts by 4 grey levels an epoch
        validation=data, epochs=4, batch_size=40, optimizer="sgd", lr=4 / 255, momentum=0,
        schedule="constant", warmup=0, clip=0, keep="best", select="linf:14/255",
        augmentations=(), report=lambda step, total, found: seen.append(dict(found)),
    )  # fmt: skip
    assert seen[0]["robust"] == 1
    assert seen[-1]["robust"] < seen[-1]["accuracy"] == 1
    assert float(model.network.shift.detach()) == pytest.approx(4 / 255, rel=1e-4)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_the_attack_in_training_never_waits_for_values(norm: str) -> None:
    """Fake tensors have no values: any look at one on the way raises."""
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(784, 4))
    objective = hardeners.get("adversarial")(norm=norm, eps=0.5, steps=4)
    with FakeTensorMode(allow_non_fake_inputs=True) as fake:
        model = make_classifier(network)
        pixels = fake.from_tensor(torch.rand(5, 3, 16, 16))
        labels = fake.from_tensor(torch.arange(5) % 4)
        loss = objective(Step(model, pixels, labels, torch.Generator(), 0))
    assert loss.shape == ()


def test_in_l1_an_accelerator_is_never_asked_for_values() -> None:
    """On the meta device there are none; the accelerator's way runs through all the same."""
    pixels = torch.empty(5, 3, 16, 16, device="meta")
    step = steepest("l1", pixels, torch.empty(5, device="meta"))
    assert project("l1", pixels, pixels + step, 12.0).shape == pixels.shape


def test_nothing_can_be_held_out_where_each_class_has_one_picture() -> None:
    data = make_dataset()
    one_each = data.take([int((data.labels == label).nonzero()[0, 0]) for label in range(4)])
    with pytest.raises(UserError, match="one each"):
        hold_out(one_each, 0.5, seed=0)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.75, 0.9, 0.999])
@pytest.mark.parametrize("each", [2, 3, 10])
def test_every_class_is_learned_and_validated(share: float, each: int) -> None:
    kept, held = hold_out(make_dataset(4 * each), share, seed=0)
    wanted = min(max(round(share * each), 1), each - 1)  # of each class
    assert held.labels.bincount(minlength=4).tolist() == [wanted] * 4
    assert kept.labels.bincount(minlength=4).tolist() == [each - wanted] * 4


def test_threats_to_select_by_may_come_as_a_list() -> None:
    """As the command line reads `-p select=linf:8/255,l1:12`; the record has the text."""
    asked = {"keep": "best", "holdout": 0.5, "epochs": 0}
    data, model = make_dataset(), make_classifier(Gentle(4))
    text = hardening_record("nominal", model, data, select="linf:8/255,l1:12", **asked)
    parts = hardening_record("nominal", model, data, select=["linf:8/255", "l1:12"], **asked)
    assert parts.digest == text.digest
    for wrong in ("robust", ["linf:8/255", "l7:1"], 3):
        with pytest.raises(UserError, match="select"):
            hardening_record("nominal", model, data, select=wrong, **asked)


def test_selecting_needs_something_to_select_on() -> None:
    for settings in ({"keep": "best"}, {"select": "linf:8/255"}):
        with pytest.raises(UserError, match="needs validation data"):
            stockpot.harden(
                "nominal", make_classifier(Gentle(4)), make_dataset(), epochs=1, **settings
            )
