"""A few images that all say the same make nothing certain: their interval is Wilson's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from pico import CLASSES, make_classifier, make_dataset
from stockpot.measure.perturbation.perturbation import Steadiness, _scores
from stockpot.measure.run import measure
from stockpot.measure.unknown.selective import selective_scores
from stockpot.results.statistics import Interval, never_certain, wilson

N = 12


class First(nn.Module):
    """Takes every picture for one of the first class."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.eye(len(CLASSES))[0])

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.scores.expand(len(pixels), -1)


@pytest.mark.parametrize("copies", [1, 3])
def test_a_perfect_model_under_corruption(copies: int) -> None:
    data = make_dataset(4 * N)
    data = data.take(torch.nonzero(data.labels == 0)[:, 0].tolist())
    if copies > 1:  # of each original, which count as one image
        original = tuple(f"image {row // copies}" for row in range(N))
        data = replace(data, columns={**data.columns, "original": original})
    asked = {"corruptions": "brightness", "severities": "1", "baseline": "none"}
    (found,) = measure(make_classifier(First()), {"corruption": asked}, data=data, device="cpu")
    score = found.score("mean_corruption_accuracy")
    assert score.value == 1
    assert (score.ci_low, score.ci_high) == pytest.approx(wilson(*[N // copies] * 2)[:2])


def test_the_surest_answers_of_a_few_images() -> None:
    right = np.arange(20) < 15
    scores = selective_scores(-np.arange(20.0), right, (0.1, 1.0))
    surest, whole = scores[2:]
    assert surest.value == 1
    assert (surest.ci_low, surest.ci_high) == pytest.approx(wilson(2, 2)[:2])
    assert whole.ci_low < whole.value == 0.75 < whole.ci_high < 1


def test_a_model_that_never_changes_its_answer() -> None:
    nothing = np.zeros((N, 30))
    found, _ = _scores(
        Steadiness({"brightness": nothing}, {"brightness": nothing}),
        None,
        "none",
        make_dataset(N),
        0,
    )
    (steady,) = [score for score in found if score.metric == "flip_probability"]
    assert (steady.ci_low, steady.ci_high) == pytest.approx(wilson(0, N)[:2])


def test_what_draws_can_tell_stays() -> None:
    drawn = Interval(0.2, 0.6, "bootstrap-95")
    assert never_certain(drawn, 0.4, 10) == drawn
    alike = Interval(0.5, 0.5, "bootstrap-95")  # each image half right: no share of images
    assert never_certain(alike, 0.5, 10) == alike
