"""Intervals against closed forms and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from stockpot.results.statistics import (
    bootstrap_grand_mean,
    bootstrap_mean,
    paired_bootstrap,
    resampled_means,
    wilson,
)


@pytest.mark.parametrize(("k", "n"), [(0, 10), (10, 10), (3, 10), (421, 1000), (1, 1)])
def test_wilson_equals_scipy(k: int, n: int) -> None:
    expected = binomtest(k, n).proportion_ci(0.95, method="wilson")
    ours = wilson(k, n)
    assert ours.low == pytest.approx(expected.low, abs=1e-12)
    assert ours.high == pytest.approx(expected.high, abs=1e-12)


def test_wilson_of_nothing_is_everything() -> None:
    assert wilson(0, 0)[:2] == (0.0, 1.0)


def test_bootstrap_mean_matches_the_normal_theory() -> None:
    values = np.random.default_rng(0).normal(2.0, 3.0, 4000)
    interval = bootstrap_mean(values, seed=1)
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert interval.low == pytest.approx(values.mean() - half, abs=0.15 * half)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.15 * half)


def test_paired_interval_uses_the_pairing() -> None:
    generator = np.random.default_rng(0)
    easy = generator.random(2000) < 0.5
    better = easy | (generator.random(2000) < 0.02)
    result = paired_bootstrap(better, easy, seed=3)
    # The exact variance of the difference is that of a rare coin, far below the unpaired one.
    share = (better & ~easy).mean()
    half = 1.96 * np.sqrt(share * (1 - share) / 2000)
    assert result.difference == pytest.approx(share)
    assert (result.high - result.low) / 2 == pytest.approx(half, rel=0.15)
    assert result.p_value < 0.01


def test_equal_models_do_not_differ() -> None:
    flags = np.random.default_rng(0).random(500) < 0.7
    result = paired_bootstrap(flags, flags)
    assert (result.difference, result.low, result.high, result.p_value) == (0, 0, 0, 1)


def test_grand_mean_resamples_images_jointly() -> None:
    # Two identical columns carry no more information than one.
    column = (np.random.default_rng(0).random(800) < 0.4).astype(float)
    one = bootstrap_mean(column, seed=5)
    two = bootstrap_grand_mean(np.stack([column, column], axis=1), seed=5)
    assert two.low == pytest.approx(one.low, abs=0.01)
    assert two.high == pytest.approx(one.high, abs=0.01)


@pytest.mark.parametrize("n", [1, 40, 13_000])  # the last is more than is kept
def test_resampled_means_are_means_of_drawn_rows(n: int) -> None:
    table = np.random.default_rng(0).normal(size=(n, 3))
    generator = np.random.default_rng(7)
    expected = np.stack([table[generator.integers(0, n, n)].mean(axis=0) for _ in range(60)])
    for _ in range(2):  # drawn, and remembered
        found = resampled_means(table, seed=7, resamples=60)
        np.testing.assert_allclose(found, expected, atol=1e-12)
