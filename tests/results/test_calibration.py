"""The calibration error's interval: it holds the value, and the truth as often as it says."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from stockpot.results.calibration import calibration_error, calibration_interval

Numbers = NDArray[np.float64]


def answers(n: int, seed: int, shift: float, where: float) -> tuple[Numbers, NDArray[np.bool_]]:
    """Answers of a model that is too sure by `shift` wherever its confidence is above `where`."""
    generator = np.random.default_rng(seed)
    confidence = generator.uniform(0.2, 1.0, n)
    chance = np.where(confidence > where, confidence - shift, confidence)
    return confidence, generator.random(n) < chance


@pytest.mark.parametrize(
    ("n", "shift", "where", "truth"),
    [
        (60, 0.0, 0.0, 0.0),  # perfectly calibrated, few images: all that is seen is chance
        (200, 0.1, 0.0, 0.1),  # too sure everywhere
        (200, 0.2, 0.8, 0.05),  # in three of the filled bins alone: a quarter of all answers
    ],
)
def test_the_interval_covers_the_truth_and_holds_the_value(
    n: int, shift: float, where: float, truth: float
) -> None:
    worlds = 30
    covered = 0
    for seed in range(worlds):
        confidence, correct = answers(n, seed, shift, where)
        interval = calibration_interval(confidence, correct, 15)
        assert interval.low <= calibration_error(confidence, correct, 15) <= interval.high
        covered += interval.low <= truth <= interval.high
    # 95 % of 30 are 28; fewer than 26 happen once in 60 such tests.
    assert covered >= 26


def test_the_interval_narrows_around_the_truth() -> None:
    confidence, correct = answers(20_000, 0, 0.1, 0.0)
    interval = calibration_interval(confidence, correct, 15)
    assert 0.08 < interval.low < 0.1 < interval.high < 0.12


def test_images_that_belong_together_count_once() -> None:
    confidence, correct = answers(200, 0, 0.1, 0.0)
    alone = calibration_interval(confidence, correct, 15)
    copies = calibration_interval(
        np.tile(confidence, 8), np.tile(correct, 8), 15, groups=np.tile(np.arange(200), 8)
    )
    assert copies.low == pytest.approx(alone.low, abs=0.01)
    assert copies.high == pytest.approx(alone.high, abs=0.01)


def test_all_right_at_high_confidence_may_be_calibrated() -> None:
    """Thirty right answers at 97 % say nothing against 97 %."""
    interval = calibration_interval(np.full(30, 0.97), np.ones(30, dtype=bool), 15)
    assert interval.low == 0.0
    assert interval.high > 0.03


def test_nothing_to_measure() -> None:
    interval = calibration_interval(np.zeros(0), np.zeros(0, dtype=bool), 15)
    assert (interval.low, interval.high) == (0.0, 1.0)
