"""Intervals against closed forms and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from stockpot.results.resamples import resampled_means
from stockpot.results.several_sets import mean_of_sets, newcombe
from stockpot.results.statistics import (
    bootstrap_grand_mean,
    bootstrap_mean,
    paired_bootstrap,
    share_interval,
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
    assert (result.difference, result.p_value) == (0, 1)
    # Five hundred images without a difference leave room for a few that have one.
    assert result.high == -result.low == wilson(0, 500).high
    assert 0.007 < result.high < 0.008


def test_images_that_all_say_the_same_are_not_certain() -> None:
    """Of a true rate, the interval for all of n images alike covers it as often as it claims."""
    one = paired_bootstrap([1.0], [0.0])
    assert one.low < 0 < one.difference == one.high == 1
    for n in (3, 10, 40):
        low = paired_bootstrap(np.ones(n), np.zeros(n)).low
        # At a difference right at the end, all of n images are for one side in 1 to 9 of 100 cases.
        assert 0.01 < ((1 + low) / 2) ** n < 0.09
    grouped = paired_bootstrap(np.ones(40), np.zeros(40), groups=np.arange(40) // 10)
    assert grouped.low == paired_bootstrap(np.ones(4), np.zeros(4)).low


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


def test_copies_of_images_are_no_further_evidence() -> None:
    right = np.random.default_rng(0).random(50) < 0.7
    groups = np.arange(50)
    once = wilson(int(right.sum()), 50)
    for copies in (1, 2, 18):
        found = share_interval(np.tile(right, copies), np.tile(groups, copies))
        assert (found.low, found.high) == pytest.approx((once.low, once.high))
    # Without groups the same 900 answers claim four times the certainty.
    alone = share_interval(np.tile(right, 18))
    assert (alone.high - alone.low) < 0.3 * (once.high - once.low)
    # Copies that know nothing of each other are further evidence, in between.
    apart = np.random.default_rng(1).random(900) < 0.7
    between = share_interval(apart, np.tile(groups, 18))
    assert (between.high - between.low) < 0.5 * (once.high - once.low)
    assert share_interval(np.ones(36, bool), np.tile(np.arange(2), 18)).low == wilson(2, 2).low


def test_pictures_that_share_either_of_two_things_cover_as_often_as_it_says() -> None:
    # 24 shapes x 24 textures, each with a leaning of its own: the true share is a half.
    generator = np.random.default_rng(3)
    shapes, textures = (part.ravel() for part in np.indices((24, 24)))
    counts = dict.fromkeys(("both", "shapes", "none"), 0)
    for _ in range(200):
        lean = generator.normal(size=(2, 24))
        noise = generator.normal(size=24 * 24)
        right = 0.7 * lean[0, shapes] + 0.7 * lean[1, textures] + noise > 0
        for name, found in {
            "both": share_interval(right, shapes, crossed=textures),
            "shapes": share_interval(right, shapes),
            "none": share_interval(right),
        }.items():
            counts[name] += found.low <= 0.5 <= found.high
    assert 182 <= counts["both"] <= 198
    assert counts["none"] < counts["shapes"] < 170
    # The same groups twice are those groups.
    once, twice = share_interval(right, shapes), share_interval(right, shapes, crossed=shapes)
    assert (twice.low, twice.high) == pytest.approx((once.low, once.high))
    assert twice.method == "wilson-95:24-groups-x-24-groups"


def test_a_mean_over_sets_of_the_same_images_covers_as_often_as_it_says() -> None:
    # Six sets of the same 60 images whose answers mostly agree: the true mean is 0.6.
    generator = np.random.default_rng(7)
    inside, narrow = 0, 0
    for _ in range(300):
        shared = generator.random(60)
        sets = [np.where(generator.random(60) < 0.9, shared, generator.random(60)) < 0.6
                for _ in range(6)]  # fmt: skip
        _, interval = mean_of_sets(sets)
        inside += interval.low <= 0.6 <= interval.high
        half = (wilson(36, 60).high - 0.6) / math.sqrt(6)
        narrow += abs(np.mean(sets) - 0.6) <= half
    assert inside / 300 > 0.91
    assert narrow / 300 < 0.7  # as if all answers were independent


def test_a_difference_on_the_same_images_is_paired() -> None:
    generator = np.random.default_rng(3)
    first = generator.random(400) < 0.6
    second = np.where(generator.random(400) < 0.9, first, generator.random(400) < 0.4)
    low, high, method = newcombe(first, second)
    paired = paired_bootstrap(first, second)
    assert method == "newcombe-paired-95"
    assert (low, high) == pytest.approx((paired.low, paired.high), abs=0.01)
    assert high - low < 0.7 * (newcombe(first, second[:-1]).high - newcombe(first, second[:-1]).low)
