"""Soups under attack: masks agree with single attacks, and with each other."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from pico import make_classifier, make_dataset
from stockpot.attack.run import attack
from stockpot.attack.threat import L1, L2, Linf
from stockpot.models.classifier import Classifier
from stockpot.pool.family import read_pool
from stockpot.season.robust import evaluate_under, line
from stockpot.season.run import season
from stockpot.season.shots import read_shots


def member(seed: int) -> Classifier:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = nn.Sequential(nn.Flatten(), nn.Linear(768, 4))
    return make_classifier(layers)


def test_masks_are_those_of_single_attacks() -> None:
    data = make_dataset()
    pool = read_pool({"a": member(0), "b": member(1)})
    shots = read_shots(data, pool.model, device=torch.device("cpu"), batch_size=16)
    soups = line(0, 1, 0.5, 2, 0, 1)
    threats = Linf("1/255") | L2(0.1) | L1(1)
    found = evaluate_under(pool, soups, shots, threats, steps=5)
    assert list(found) == ["clean", "linf 1/255", "l2 0.1", "l1 1", "union"]
    pixels = torch.cat(list(shots.batches)).float() / 255
    alone = attack(member(1), pixels, data.labels, norm="linf", eps="1/255", steps=5)
    assert np.array_equal(found["linf 1/255"].correct[2], alone.robust.numpy())
    assert np.array_equal(found["clean"].correct[2], alone.correct.numpy())
    for name in ("linf 1/255", "l2 0.1", "l1 1"):
        assert (found["union"].correct <= found[name].correct).all()
        assert (found[name].correct <= found["clean"].correct).all()


def test_the_grid_can_choose_the_soup_that_withstands_most() -> None:
    data = make_dataset()
    members = {"a": member(0), "b": member(1)}
    asked = {"low": 0.0, "high": 1.0, "step": 0.5, "shots": 30}
    chosen = season("grid", members, data, threats="linf:1/255,l2:0.1", attack_steps=5, **asked)
    assert chosen.record.details["notes"]["decided under"] == "linf 1/255 | l2 0.1"
    pool = read_pool(members)
    seen = read_shots(
        data.take(chosen.selected_on), pool.model, device=torch.device("cpu"), batch_size=30
    )
    soups = line(0, 1, 0.5, 2, 1, 0)
    union = evaluate_under(pool, soups, seen, Linf("1/255") | L2(0.1), steps=5)["union"]
    assert chosen.matrix is not None
    assert chosen.matrix.accuracy().max() == union.accuracy().max()


def test_a_line_meets_its_members_exactly() -> None:
    soups = line(-0.4, 1.4, 0.2, 3, 0, 2)
    assert len(soups) == 10
    assert soups[2].tolist() == [1, 0, 0]
    assert soups[7].tolist() == [0, 0, 1]
    assert torch.allclose(soups.sum(1), torch.ones(10, dtype=torch.float64))
