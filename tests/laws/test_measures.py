"""Laws of every measure. A new measure needs a row here, or the first test fails."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from imagenet_suite import reader, shared_suite
from pico import ReadsLabel, make_classifier, make_dataset
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.measure import measures
from stockpot.measure.measurement import Context, Measurement
from stockpot.models.classifier import Classifier
from stockpot.results.schema import Score

World = Callable[[nn.Module, int], tuple[Classifier, Dataset]]


def toys(network: nn.Module, n: int) -> tuple[Classifier, Dataset]:
    return make_classifier(network), make_dataset(n)


def little_imagenet(network: nn.Module, n: int) -> tuple[Classifier, Dataset]:
    """The measure asks for ImageNet's classes, whatever network a law brings."""
    return reader(), load_dataset("imagenet", path=shared_suite(), limit=n)


def little_objects(network: nn.Module, n: int) -> tuple[Classifier, Dataset]:
    """A measure of relevance needs maps to explain and objects to find."""
    generator = torch.Generator().manual_seed(0)
    maps = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(784, 4))
    for parameter in maps.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) / 10
    data = make_dataset(n)
    return make_classifier(maps), replace(
        data, masks=torch.rand(n, 16, 16, generator=generator) < 0.5
    )


@cache
def _kept() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="stockpot-published-")


@cache
def _published(n: int) -> str:
    folder = f"{_kept().name}/{n}"
    settings = {"generator": "colour", "oracle": "none", "budget": 2, "export": folder}
    maker = make_classifier(ReadsLabel(4))
    measures.get("dynamic")(maker, make_dataset(n), Context(), **settings)
    return folder


def little_published_set(network: nn.Module, n: int) -> tuple[Classifier, Dataset]:
    return make_classifier(network), load_dataset(_published(n))


FOREIGN = make_dataset(20, classes=("eel", "fox"))


class Row(NamedTuple):
    """A measure, parameters that keep it small, and the score that a perfect model has at 1."""

    name: str
    params: dict[str, Any]
    accuracy: str | None
    world: World = toys


ROWS = {
    row.name: row
    for row in (
        Row("clean", {"bins": 5}, "accuracy"),
        Row("cost", {"batch": 4, "repeats": 3}, None),
        Row(
            "corruption",
            {"corruptions": ("contrast", "shot_noise"), "severities": (1,), "baseline": "none"},
            "accuracy",
        ),
        Row("stream", {"severity": 0, "attacked": 0, "batch": 16}, "accuracy"),
        Row("perturbation", {"perturbations": ("brightness", "shot_noise")}, None),
        Row("adversarial", {"norms": "linf", "eps": "1/255", "steps": 3}, "accuracy"),
        Row("audit", {"eps": "1/255", "budget": 150}, "accuracy"),
        Row("shift", {"outside": {"elsewhere": make_dataset(20)}}, "mean_outside_accuracy"),
        Row("surface", {"unseen": ("new",)}, "unseen_accuracy"),
        Row("factors", {"by": "family"}, "accuracy"),
        Row("shape_bias", {}, "accuracy"),
        Row("dynamic", {"generator": "colour", "oracle": "none", "budget": 3}, "accuracy"),
        Row("published", {}, None, little_published_set),
        Row("oracle_audit", {"generator": "colour", "budget": 2}, "accuracy"),
        Row("object_masks", {"thresholds": (0.2, 0.6)}, None, little_objects),
        Row("ood", {"far": {"elsewhere": FOREIGN}, "detectors": ("msp", "energy")}, "accuracy"),
        Row("calibration", {"held_out": "content", "bins": 5}, "accuracy"),
        Row("conformal", {"alpha": 0.2}, "accuracy"),
        Row("selective", {}, "accuracy"),
        Row("label_free", {"source": "content"}, "accuracy"),
        Row(
            "certified",
            {"sigma": 1e-6, "n": 6, "n0": 1, "alpha": 0.05, "step": 1e-6},
            "smoothed_accuracy",
        ),
        Row("imagenet_variants", {"root": shared_suite()}, None, little_imagenet),
    )
}
SCORED = [row for row in ROWS.values() if row.accuracy]
by_name = pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
by_scored = pytest.mark.parametrize("row", SCORED, ids=[row.name for row in SCORED])


class RandomGuess(nn.Module):
    """An answer that has nothing to do with the class: a hash of noise pixels."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weights = nn.Parameter(torch.randn(4, 3 * 15 * 16, generator=generator))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return (pixels[:, :, 1:].flatten(1) - 0.5) @ self.weights.T


def run(row: Row, network: nn.Module, n: int = 40, batch: int = 16, seed: int = 0) -> Measurement:
    context = Context(batch_size=batch, seed=seed)
    model, data = row.world(network, n)
    result: Measurement = measures.get(row.name)(model, data, context, **row.params)
    return result


def find(result: Measurement, metric: str) -> Score:
    return next(score for score in result.scores if score.metric == metric)


def test_every_measure_has_a_row() -> None:
    assert sorted(ROWS) == measures.names()


@by_name
def test_scores_are_sound(row: Row) -> None:
    result = run(row, ReadsLabel(4))
    assert result.scores
    assert result.convention
    assert result.images > 0
    seen = set()
    for score in result.scores:
        key = (score.metric, tuple(sorted(score.condition.items())))
        assert key not in seen, f"{key} is given twice"
        seen.add(key)
        assert score.n > 0
        if score.ci_low is not None:
            assert score.ci_high is not None
            assert score.ci_low - 1e-12 <= score.value <= score.ci_high + 1e-12 or (
                score.metric == "ece"  # biased upwards, and so is its bootstrap
            )
            assert score.ci_method
    for name, flags in result.outcomes.items():
        assert flags.shape == (40,) or name.startswith("outside:")


@by_scored
def test_a_perfect_model_scores_one(row: Row) -> None:
    assert find(run(row, ReadsLabel(4)), str(row.accuracy)).value == 1.0


@by_scored
def test_a_guessing_model_scores_one_in_classes(row: Row) -> None:
    score = find(run(row, RandomGuess(), n=800, batch=800), str(row.accuracy))
    assert score.ci_low is not None
    assert score.ci_high is not None
    assert score.ci_low <= 0.25 <= score.ci_high


@by_scored
def test_the_same_seed_gives_the_same_numbers_at_every_batch_size(row: Row) -> None:
    whole = run(row, RandomGuess(), batch=40, seed=3)
    parts = run(row, RandomGuess(), batch=7, seed=3)
    assert {k: v.tolist() for k, v in parts.outcomes.items()} == {
        k: v.tolist() for k, v in whole.outcomes.items()
    }


@by_name
def test_the_model_comes_back_as_it_was(row: Row) -> None:
    model, data = row.world(ReadsLabel(4), 8)
    model.train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    measures.get(row.name)(model, data, Context(), **row.params)
    assert model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
