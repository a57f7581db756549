"""Calibration and selective accuracy against closed forms and plain loops."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.special import logit, softmax

from pico import CLASSES, make_classifier, make_dataset
from stockpot.measure.measurement import Context
from stockpot.measure.unknown.calibration import calibration
from stockpot.measure.unknown.selective import selective, selective_scores
from stockpot.measure.unknown.temperature import LEAST, fitted_temperature
from stockpot.results.calibration import (
    calibration_error,
    calibration_interval,
    classwise_error,
    reliability,
)
from unknown.tables import Table, answers_from


def test_the_temperature_of_two_classes_is_known() -> None:
    """Logits 0 and 3 that are right in 80 of 100 images: 3 / T must be the log odds of 0.8."""
    logits = np.tile([3.0, 0.0], (100, 1))
    labels = (np.arange(100) % 5 == 0).astype(np.int64)
    fit = answers_from(logits, labels)
    assert fitted_temperature(fit) == pytest.approx(3 / logit(0.8), rel=1e-5)
    # Where all is right no temperature is low enough, and where nothing is answered none is told.
    assert LEAST <= fitted_temperature(answers_from(logits, 0 * labels)) < 0.1
    assert fitted_temperature(answers_from(logits * np.nan, labels)) == 1.0


def test_bins_of_equal_mass() -> None:
    generator = np.random.default_rng(0)
    confidence = generator.permutation(np.linspace(0.3, 0.99, 60) ** 2)
    correct = generator.random(60) < 0.6
    order = np.argsort(confidence)
    parts = np.split(order, 6)
    want = sum(abs(confidence[p].mean() - correct[p].mean()) * 10 for p in parts) / 60
    assert calibration_error(confidence, correct, 6, "mass") == pytest.approx(want)
    bars = reliability(confidence, correct, 6, "mass")
    assert [bar.n for bar in bars] == [10] * 6
    assert bars[2].accuracy == pytest.approx(correct[parts[2]].mean())
    # Equal confidences are one bin, wherever they end.
    assert [bar.n for bar in reliability(np.full(9, 0.5), np.ones(9, bool), 4, "mass")] == [9]
    interval = calibration_interval(confidence, correct, 6, binning="mass")
    assert interval.low <= want <= interval.high


def test_the_classwise_error_asks_every_probability() -> None:
    generator = np.random.default_rng(1)
    chances = softmax(generator.normal(size=(80, 3)) * 2, axis=1)
    labels = generator.integers(0, 3, 80)
    want = 0.0
    for number in range(3):
        own, right = chances[:, number], labels == number
        for low in np.arange(5) / 5:
            here = (own >= low) & (own < low + 0.2)
            if here.any():
                want += abs(own[here].mean() - right[here].mean()) * here.sum() / 80 / 3
    truth = np.arange(3) == labels[:, None]
    assert classwise_error(chances, truth, 5) == pytest.approx(want)


def spelled(n: int, sure: float, right: float):
    """A model as sure as this and right in that share, on images that spell their rows."""
    data = make_dataset(n)
    pixels = next(data.batches(n)).images
    pixels[:, :, 0, 0] = torch.arange(n).to(torch.uint8)[:, None]
    chances = torch.full((n, 4), (1 - sure) / 3)
    wrong = (torch.arange(n) * 7 % n) >= right * n
    chances[torch.arange(n), torch.where(wrong, (data.labels + 1) % 4, data.labels)] = sure
    return make_classifier(Table(chances.log()), CLASSES), data


def test_a_temperature_mends_what_is_too_sure() -> None:
    model, data = spelled(200, sure=0.97, right=0.7)
    found = calibration(model, data, Context(), held_out="content")

    def value(metric: str, scaled: bool = False) -> float:
        return next(
            score.value
            for score in found.scores
            if score.metric == metric and ("scaling" in score.condition) == scaled
        )

    # 0.27 in all images; which half is scored moves the accuracy a little.
    assert value("ece") == pytest.approx(0.27, abs=0.08)
    assert value("ece", scaled=True) < 0.1 < value("ece")
    for metric in ("nll", "brier", "classwise_ece", "adaptive_ece"):
        assert value(metric, scaled=True) < value(metric)
    assert value("temperature") > 2
    assert value("accuracy") == pytest.approx(0.7, abs=0.01)  # of all images, not of a half
    bars = [score for score in found.scores if score.metric == "bin_accuracy"]
    scored = next(score.n for score in found.scores if score.metric == "ece")
    assert sum(score.n for score in bars) == 2 * scored < 400
    assert "half by content" in found.convention


def aurc(errors: list[float]) -> float:
    return float(np.mean([np.mean(errors[: k + 1]) for k in range(len(errors))]))


def score_of(scores, metric: str, **condition):
    return next(
        s for s in scores if s.metric == metric and condition.items() <= s.condition.items()
    )


def test_risk_over_coverage_by_hand() -> None:
    generator = np.random.default_rng(2)
    sure, correct = generator.random(30), generator.random(30) < 0.6
    scores = selective_scores(sure, correct, (0.5, 1.0))
    order = np.argsort(-sure)
    errors = (~correct[order]).astype(float).tolist()
    assert score_of(scores, "aurc").value == pytest.approx(aurc(errors))
    best = aurc(sorted(errors))
    assert score_of(scores, "excess_aurc").value == pytest.approx(aurc(errors) - best)
    half = score_of(scores, "selective_accuracy", coverage=0.5)
    assert (half.value, half.n) == (pytest.approx(1 - np.mean(errors[:15])), 15)
    assert score_of(scores, "selective_accuracy", coverage=1.0).value == correct.mean()
    perfect = selective_scores(correct.astype(float), correct, (1.0,))
    assert score_of(perfect, "excess_aurc").value == pytest.approx(0, abs=1e-12)


def test_equally_sure_answers_stand_in_random_order() -> None:
    """The expectation over all orders of those that are equal."""
    sure = np.array([0.9, 0.5, 0.5, 0.5, 0.1])
    correct = np.array([True, True, False, False, True])
    orders = [[0.0, *part, 0.0] for part in permutations([0.0, 1.0, 1.0])]
    scores = selective_scores(sure, correct, (0.4,))
    assert score_of(scores, "aurc").value == pytest.approx(np.mean([aurc(o) for o in orders]))
    want = 1 - np.mean([np.mean(order[:2]) for order in orders])
    assert score_of(scores, "selective_accuracy").value == pytest.approx(want)


@pytest.mark.parametrize("by", ["msp", "max_logit", "margin", "entropy"])
def test_a_silent_answer_is_sure_and_wrong(by: str) -> None:
    model, data = spelled(40, sure=0.9, right=1.0)
    with torch.no_grad():
        model.network.table[:4] = torch.nan
    found = selective(model, data, Context(), by=by, coverages=(0.1, 1.0))
    assert score_of(found.scores, "selective_accuracy", coverage=0.1).value == 0.0
    assert score_of(found.scores, "selective_accuracy", coverage=1.0).value == 0.9
