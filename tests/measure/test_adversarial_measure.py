"""The adversarial measure: laws, protocols, and agreement with the attacks it runs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from pico import make_classifier, make_dataset
from stockpot.attack.run import attack
from stockpot.errors import UserError
from stockpot.measure import measures
from stockpot.measure.adversarial.protocols import PROTOCOLS
from stockpot.measure.measurement import Context

QUICK = {"steps": 4, "eps": "1/255,0.1,0.5"}


def linear() -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    layer = nn.Linear(768, 4)
    layer.weight.data = torch.randn(4, 768, generator=generator) / 8
    layer.bias.data.zero_()
    return nn.Sequential(nn.Flatten(), layer)


def score(result, metric: str, **condition):
    for found in result.scores:
        if found.metric == metric and condition.items() <= found.condition.items():
            return found
    raise KeyError(metric)


class Constant(nn.Module):
    """Always class 0, whatever the image."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor([1.0, 0.0, 0.0, 0.0]))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.logits + 0 * pixels.flatten(1).sum(1, keepdim=True)


def test_a_constant_model_keeps_its_class() -> None:
    result = measures.get("adversarial")(
        make_classifier(Constant()), make_dataset(), Context(), **QUICK
    )
    assert score(result, "accuracy").value == 0.25
    assert score(result, "robust_accuracy", norm="l2", eps="0.1").value == 0.25
    assert score(result, "union_accuracy").value == 0.25
    assert any("gradient of zero" in note for note in result.notes)


def test_the_numbers_are_the_attacks() -> None:
    model, data = make_classifier(linear()), make_dataset()
    result = measures.get("adversarial")(model, data, Context(seed=3), **QUICK)
    seeds = [(3 << 32) + row for row in range(40)]
    direct = attack(
        model, data.images.pixels, data.labels, norm="linf", eps="1/255", loss="dlr", steps=4,
        seed=seeds,
    )  # fmt: skip
    assert np.array_equal(result.outcomes["robust:linf:1/255"], direct.robust.numpy())
    found = score(result, "robust_accuracy", norm="linf")
    assert found.value == direct.accuracy
    assert found.condition == {"norm": "linf", "eps": "1/255"}
    assert found.ci_low < found.value < found.ci_high
    each = [result.outcomes[f"robust:{ball}"] for ball in ("linf:1/255", "l2:0.1", "l1:0.5")]
    assert np.array_equal(result.outcomes["union"], np.logical_and.reduce(each))
    assert not (result.outcomes["union"] & ~result.outcomes["correct"]).any()


@pytest.mark.parametrize("batch", [7, 64])
def test_batch_size_changes_nothing(batch: int) -> None:
    model, data = make_classifier(linear()), make_dataset()
    whole = measures.get("adversarial")(model, data, Context(batch_size=40), **QUICK)
    parts = measures.get("adversarial")(model, data, Context(batch_size=batch), **QUICK)
    assert parts.scores == whole.scores


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_runs(protocol: str) -> None:
    model, data = make_classifier(linear()), make_dataset(8)
    run = measures.get("adversarial")
    steps = {"steps": 2} if PROTOCOLS[protocol].method == "apgd" else {}
    result = run(model, data, Context(), protocol=protocol, **steps)
    assert len(result.scores) == (2 if protocol.startswith("robustbench") else 5)
    assert f"adversarial:{protocol}" in result.convention


def test_mistakes_are_explained(perfect, toy_data) -> None:
    run = measures.get("adversarial")
    with pytest.raises(UserError, match="Did you mean soups-cifar"):
        run(perfect, toy_data, Context(), protocol="soup-cifar")
    with pytest.raises(UserError, match="one eps for each norm"):
        run(perfect, toy_data, Context(), norms="linf,l2", eps="1/255")
    with pytest.raises(UserError, match="robustbench has linf"):
        run(perfect, toy_data, Context(), protocol="robustbench", norms="l1")
