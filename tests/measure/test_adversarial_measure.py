"""The adversarial measure: laws, protocols, and agreement with the attacks it runs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from pico import make_classifier, make_dataset
from stockpot.attack.run import attack
from stockpot.attack.scored import attack_scored
from stockpot.attack.task import planned, untouched
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


@pytest.mark.parametrize(
    ("name", "norm", "eps", "images"),
    [
        ("robustbench", "linf", 8 / 255, 10_000),
        ("robustbench-l2", "l2", 0.5, 10_000),
        ("robustbench-imagenet", "linf", 4 / 255, 5_000),
    ],
)
def test_the_boards_of_robustbench_are_as_published(name, norm, eps, images, monkeypatch) -> None:
    # robustbench/eval.py runs AutoAttack(version="standard"); the numbers are its set_version's.
    runs: list[tuple[str, dict[str, object]]] = []

    def spy(what: str):
        def run(victim, task, **settings):
            runs.append((what, settings))
            return planned(untouched(task), 1)

        return run

    for what in ("apgd", "fab", "square"):
        monkeypatch.setattr(f"stockpot.attack.methods.autoattack.{what}", spy(what))
    model, data = make_classifier(linear()), make_dataset(4)
    result = measures.get("adversarial")(model, data, Context(), protocol=name)
    ce, targeted, walk, random = runs
    assert [what for what, _ in runs] == ["apgd", "apgd", "fab", "square"]
    assert {"steps": 100, "restarts": 1, "radii": "single"}.items() <= ce[1].items()
    wanted = {"steps": 100, "loss": "dlr_targeted", "targets": 9, "radii": "single"}
    assert wanted.items() <= targeted[1].items()
    assert walk[1] == {"steps": 100, "targets": 9, "patience": 0}
    assert random[1] == {"steps": 5000}
    (ball,) = PROTOCOLS[name].threats
    assert (ball.norm, ball.radius) == (norm, eps)
    assert result.convention == f"adversarial:{name}; method=autoattack; pixels in [0, 1]"
    assert any(f"stand on {images} images, these on 4" in note for note in result.notes)


def test_what_was_changed_is_not_called_the_protocol() -> None:
    model, data = make_classifier(linear()), make_dataset(4)
    run = measures.get("adversarial")
    fewer = run(model, data, Context(), steps=1, norms="linf").convention
    assert fewer.startswith("adversarial:soups-cifar (changed); method=apgd, steps=1;")
    closer = run(model, data, Context(), norms="l1", eps="1", protocol="soups-strong", steps=1)
    assert "soups-strong (changed)" in closer.convention


def test_a_radius_keeps_its_digits_in_the_result() -> None:
    model, data = make_classifier(linear()), make_dataset(4)
    ask = {"norms": "linf", "eps": (8 / 255,), "steps": 1}
    result = measures.get("adversarial")(model, data, Context(), **ask)
    (found,) = [s for s in result.scores if s.metric == "robust_accuracy"]
    assert float(found.condition["eps"]) == 8 / 255
    assert f"robust:linf:{found.condition['eps']}" in result.outcomes


def test_flags_are_facts_in_the_result() -> None:
    data = make_dataset(8)
    result = measures.get("adversarial")(
        make_classifier(Constant()), data, Context(batch_size=3), **QUICK
    )
    flat = [flag for flag in result.flags if flag.name == "zero_gradients"]
    assert [(flag.condition["norm"], flag.count, flag.of) for flag in flat] == [
        ("linf", 2, 8), ("l2", 2, 8), ("l1", 2, 8),
    ]  # fmt: skip

    class Softmax(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = linear()

        def forward(self, pixels):
            return self.inner(pixels).softmax(dim=1)

    soft = measures.get("adversarial")(
        make_classifier(Softmax()), data, Context(batch_size=3), norms="linf", steps=1
    )
    (flag,) = [flag for flag in soft.flags if flag.name == "softmax"]
    assert (flag.count, flag.of, flag.condition) == (8, 8, {"norm": "linf", "eps": "8/255"})


def test_mistakes_are_explained(perfect, toy_data) -> None:
    run = measures.get("adversarial")
    with pytest.raises(UserError, match="Did you mean soups-cifar"):
        run(perfect, toy_data, Context(), protocol="soup-cifar")
    with pytest.raises(UserError, match="one eps for each norm"):
        run(perfect, toy_data, Context(), norms="linf,l2", eps="1/255")
    with pytest.raises(UserError, match="robustbench has linf"):
        run(perfect, toy_data, Context(), protocol="robustbench", norms="l1")


def test_a_curve_over_radii_attacks_only_what_stands(monkeypatch) -> None:
    model, data = make_classifier(linear()), make_dataset()
    radii = ("4/255", "0.5/255", "1/255")
    asked: list[tuple[str, int]] = []

    def spy(model, pixels, scorer, rows, **params):
        asked.append((params["eps"], len(rows)))
        return attack_scored(model, pixels, scorer, rows, **params)

    monkeypatch.setattr("stockpot.measure.adversarial.measure.attack_scored", spy)
    result = measures.get("adversarial")(
        model, data, Context(), method="fgsm", norms="linf,linf,linf", eps=radii
    )
    robust = {eps: result.outcomes[f"robust:linf:{eps}"] for eps in radii}
    order = ("0.5/255", "1/255", "4/255")
    before = np.ones(40, dtype=bool)
    assert asked[0] == ("0.5/255", 40)
    for (eps, count), name in zip(asked, order, strict=True):
        alone = attack(
            model, data.images.pixels, data.labels, eps=eps, method="fgsm", seed=list(range(40))
        )
        # What an attack of its own would leave, without those that a smaller radius has felled.
        assert eps == name
        assert np.array_equal(robust[name], before & alone.robust.numpy())
        assert count == (40 if name == order[0] else before.sum())
        before = robust[name]
    assert 0 < robust["4/255"].sum() < robust["0.5/255"].sum() < result.outcomes["correct"].sum()
    assert [s.condition.get("eps") for s in result.scores[1:4]] == list(radii)


def test_a_threat_that_is_named_twice_counts_once() -> None:
    result = measures.get("adversarial")(
        make_classifier(linear()), make_dataset(), Context(), norms="linf,linf", eps="1/255,1/255"
    )
    assert [found.n for found in result.scores] == [40, 40]
    assert len(result.outcomes["union"]) == 40
