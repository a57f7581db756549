"""Differences over a few trainings: by the interval, and every training on its side."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stockpot.results.contrast import Contrast
from stockpot.results.few_seeds import (
    Difference,
    Drawn,
    drawn_mean,
    over_draws,
    over_seeds,
    several_said,
)

Flags = NDArray[np.bool_]


def right(share: float, n: int = 400) -> dict[str, Flags]:
    return {"a": np.arange(n) < share * n, "b": np.arange(n) < share * n}


def test_a_difference_is_the_mean_over_conditions_and_seeds() -> None:
    found = over_seeds([(right(0.8), right(0.6)), (right(0.9), right(0.6))])
    assert abs(found.alone.value - 0.25) < 1e-6
    assert np.allclose(found.each, (0.2, 0.3))
    assert found.alone.low < found.alone.value < found.alone.high
    assert found.said() == "held"
    assert found.said(margin=0.5) == "did not hold"
    assert found.said(margin=0.25) == "not told apart"


def test_no_verdict_where_one_seed_is_on_the_other_side() -> None:
    clear = Contrast(0.1, 0.05, 0.15)
    assert Difference(clear, clear, (0.2, 0.1, 0.01)).said() == "held"
    assert Difference(clear, clear, (0.2, 0.2, -0.1)).said() == "not told apart"
    below = Contrast(-0.1, -0.15, -0.05)
    assert Difference(below, below, (-0.2, 0.01)).said() == "not told apart"


def test_intervals_for_several_are_wider_and_all_must_hold() -> None:
    runs = [(right(0.63), right(0.6)), (right(0.64), right(0.6))]
    alone, many = over_seeds(runs), over_seeds(runs, of=10)
    assert many.together.low < alone.together.low
    assert many.alone == alone.alone
    lower = over_seeds([(right(0.5), right(0.6)), (right(0.5), right(0.6))])
    assert several_said([alone, lower], every=True) == "did not hold"
    assert several_said([alone, lower], every=False) == "held"


def test_images_are_drawn_anew_for_all_seeds_together() -> None:
    """One set of images asked of many seeds says no more about images than it has images."""
    one = over_seeds([(right(0.7), right(0.6))])
    five = over_seeds([(right(0.7), right(0.6))] * 5)
    assert abs((five.alone.high - five.alone.low) - (one.alone.high - one.alone.low)) < 0.02


def test_draws_of_any_number_are_joined_as_means_are() -> None:
    """What is a mean over images has nearly the interval that `over_seeds` gives it."""
    pairs = [(right(0.8), right(0.6)), (right(0.9), right(0.6))]
    means = over_seeds(pairs)
    found = over_draws([drawn_mean(a["a"]) - drawn_mean(b["a"]) for a, b in pairs], of=5)
    assert np.allclose(found.each, (0.2, 0.3))
    assert np.allclose(found.alone, means.alone, atol=0.01)
    assert found.together.low < found.alone.low
    assert found.alone.high < found.together.high


def test_one_draw_of_images_serves_all_seeds() -> None:
    one = drawn_mean(right(0.7)["a"])
    assert np.array_equal(one.draws, drawn_mean(right(0.7)["a"]).draws)
    assert np.allclose(over_draws([one] * 3).alone, one.interval())
    assert (one - one).interval() == (0, 0, 0)


def test_a_few_seeds_may_be_alike() -> None:
    near, wide = Contrast(0.01, -0.01, 0.03), Contrast(0.01, -0.06, 0.08)
    assert Difference(near, wide, (0.02, 0.0)).said_alike(0.05) == "held"
    assert Difference(near, wide, (0.02, 0.0)).said_alike(0.05, together=True) == "not told apart"
    assert Difference(near, near, (0.06, -0.04)).said_alike(0.05) == "not told apart"
    far = Drawn(-0.2, np.full(10, -0.2))
    assert over_draws([far, far]).said_alike(0.05) == "did not hold"
    assert over_draws([far, Drawn(0.2, np.full(10, 0.2))]).said_alike(0.05) == "not told apart"
