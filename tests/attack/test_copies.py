"""Faster copies of a network that several attacks share."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from stockpot.attack.copies import Copies, Faster, faster
from stockpot.attack.run import attack


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Faster]:
    """The copies that are made, in their order."""
    found: list[Faster] = []

    def spy(*given: object) -> Faster:
        found.append(faster(*given))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr("stockpot.attack.copies.faster", spy)
    return found


def test_a_copy_serves_until_the_weights_change(made: list[Faster]) -> None:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(32, 4)
    model = nn.Sequential(*layers).eval()
    images, copies = torch.rand(12, 3, 4, 4), Copies()
    labels = model(images).argmax(dim=1)

    def robust(**options: object) -> list[bool]:
        found = attack(model, images, labels, eps="4/255", steps=3, **options)  # type: ignore[arg-type]
        return found.robust.tolist()

    ways = {"forward": "folded", "copies": copies}
    assert robust(**ways) == robust(**ways) == robust()
    assert len(made) == 1
    assert isinstance(made[0].run[1], nn.Identity)  # type: ignore[index]
    with torch.no_grad():
        layers[1].weight.mul_(-1)  # in place, as an optimiser does
    labels = model(images).argmax(dim=1)
    assert robust(**ways) == robust()
    assert len(made) == 2
    torch.testing.assert_close(made[1].run(images), model(images), rtol=1e-4, atol=1e-4)
    model[0] = nn.Conv2d(3, 8, 3)  # another layer in its place
    labels = model(images).argmax(dim=1)
    robust(**ways)
    robust(**{**ways, "precision": "bf16"})
    assert len(made) == 4


def test_batches_of_one_measure_share_a_copy(made: list[Faster]) -> None:
    from pico import make_classifier, make_dataset
    from stockpot.measure import measures
    from stockpot.measure.measurement import Context

    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(784, 4))
    asked = {"norms": "linf,linf", "eps": "0.1/255,1/255", "attacks": "apgd-ce", "steps": 2}
    measures.get("adversarial")(
        make_classifier(net.eval()), make_dataset(), Context(batch_size=10),
        protocol="robustbench", **asked,
    )  # fmt: skip
    assert len(made) == 1
