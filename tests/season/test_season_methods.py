"""Single methods against closed forms and planted answers."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from season.toys import linear_member, norm_member, toy_images
from stockpot.errors import UserError
from stockpot.score.without_labels.confidence import atc_accuracy, entropy
from stockpot.season.criteria import temperature
from stockpot.season.methods.racing import race
from stockpot.season.run import season


def test_the_temperature_is_the_one_that_was_applied() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4000, 5, generator=generator) * 2
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    losses = partial(F.cross_entropy, target=labels, reduction="none")
    calibrated = temperature(logits, losses)
    assert calibrated == pytest.approx(1, abs=0.06)
    # Inflated logits, as extrapolation makes them, get the inflation back as temperature.
    assert temperature(7 * logits, losses) == pytest.approx(7 * calibrated, rel=1e-3)


def test_entropy_and_atc_by_hand() -> None:
    odds = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    assert entropy(odds).tolist() == pytest.approx([0.0, math.log(2)])
    source = torch.tensor([0.1, 0.2, 0.3, 0.4])
    correct = torch.tensor([False, True, True, True])
    # One of four is wrong: the threshold lies at the lowest score.
    assert atc_accuracy(source, correct, torch.tensor([0.05, 0.15, 0.5, 0.5])) == 0.75
    assert atc_accuracy(source, correct, source) == correct.double().mean()
    assert atc_accuracy(source, ~correct, source) == 0.25
    assert atc_accuracy(source, torch.ones(4, dtype=torch.bool), source) == 1.0


def test_gradient_finds_a_planted_extrapolation() -> None:
    members = [linear_member(1), linear_member(2)]
    teacher = linear_member(3)
    with torch.no_grad():
        for goal, a, b in zip(*(list(m.parameters()) for m in (teacher, *members)), strict=True):
            goal.copy_(-0.4 * a + 1.4 * b)
    images = toy_images(500, teacher)
    result = season("gradient", members, images, shots=300, batch_size=300, steps=80, penalty=0.0)
    assert result.weights[0] < -0.1
    assert result.accuracy.value > max(s.value for s in result.member_accuracy.values())
    pulled = season("gradient", members, images, shots=300, batch_size=300, penalty=1000.0)
    assert pulled.weights == pytest.approx((0.5, 0.5), abs=0.02)


@pytest.mark.parametrize(("scope", "groups"), [("global", 1), ("block", 3), ("tensor", 8)])
def test_scopes_share_weights(scope: str, groups: int) -> None:
    members = [norm_member(seed) for seed in (1, 2)]
    result = season("gradient", members, toy_images(40, members[1]), shots=20, scope=scope, steps=4)
    rows = result.tensor_weights
    distinct = {tuple(row.tolist()) for row in rows.values()} if rows else {result.weights}
    assert result.record.details["notes"]["groups"] == groups
    # Running statistics have no gradient of their own: as groups they stay where they began.
    assert 1 <= len(distinct) <= groups


def test_learned_lowers_the_loss_and_stays_convex() -> None:
    members = [linear_member(seed) for seed in (1, 2, 3)]
    images = toy_images(120, members[1])
    result = season("learned", members, images, shots=60, steps=40, lr=0.1)
    before, after = result.record.details["notes"]["loss"]
    assert after < before
    assert all(bool((row >= 0).all()) for row in result.tensor_weights.values())
    assert max(result.weights) == result.weights[1]


def test_a_race_by_hand() -> None:
    # Candidate c is right on every image with a number below c: the last one is best.
    seen = []

    def judge(alive: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        seen.append((len(alive), len(rows)))
        return (rows[None, :] < 3 * alive[:, None]).sum(axis=1), np.zeros(len(alive))

    order = np.random.default_rng(0).permutation(100)
    result = race(np.eye(40), order, judge, first=0.1, keep=0.25)
    assert seen == [(40, 10), (10, 30), (3, 60)]
    assert result.images == sum(a * b for a, b in seen)
    assert result.winner in range(34, 40)
    assert result.accuracy == 1.0
    with pytest.raises(UserError, match="keep"):
        race(np.eye(40), order, judge, first=0.1, keep=1.0)


def test_label_free_is_not_won_by_large_logits() -> None:
    # The second member is the first with logits ten times as large: nothing tells them apart, and
    # raw entropy would run to the end of the grid.
    small, large = linear_member(1), linear_member(1)
    with torch.no_grad():
        for parameter in large.parameters():
            parameter *= 10
    images, source = toy_images(60, small), toy_images(60, small, noise=0.3)
    notes = [
        season("label_free", pair, images, source=source, shots=30, criterion="entropy",
               low=0.0, high=1.0, step=1.0).record.details["notes"]
        for pair in ([small, small], [large, large])
    ]  # fmt: skip
    assert notes[0]["score"] == pytest.approx(notes[1]["score"], rel=1e-3)
    assert notes[1]["temperature"] == pytest.approx(10 * notes[0]["temperature"], rel=1e-2)


@pytest.mark.parametrize("criterion", ["doc", "nuclear_norm"])
def test_unlabelled_images_show_the_better_end_of_the_grid(criterion: str) -> None:
    # The other member answers all alike: it is unsure, and of few classes.
    teacher, dull = linear_member(1), linear_member(1)
    with torch.no_grad():
        for parameter in dull.parameters():
            parameter *= 0
    images = toy_images(80, teacher)
    found = season("label_free", [dull, teacher], images, source=images, shots=40,
                   criterion=criterion, low=0.0, high=1.0, step=1.0)  # fmt: skip
    assert found.weights == (0.0, 1.0)


def test_few_labels_tell_the_better_member() -> None:
    teacher = linear_member(1)
    images = toy_images(80, teacher)
    found = season("coda", [linear_member(5), teacher, linear_member(7)], images,
                   shots=40, labels=15, step=1.0)  # fmt: skip
    assert found.weights == (0.0, 1.0, 0.0)
    notes = found.record.details["notes"]
    assert notes["labels"] == len(set(notes["asked"])) == 15
    assert found.accuracy.value == 1.0
