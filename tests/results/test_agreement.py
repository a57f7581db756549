"""Rank agreement, against scipy and known orders."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hand_made import clean_cell
from stockpot.errors import UserError
from stockpot.results.agreement import (
    _correlations,
    accuracy_table,
    cell_agreement,
    outcome_table,
    rank_agreement,
    self_agreement,
)
from stockpot.results.packed import pack_bits

LEVELS = (0.2, 0.4, 0.6, 0.8)


def tables(n: int, levels: tuple[float, ...] = LEVELS, seed: int = 0) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [accuracy_table(generator.random(n) < level) for level in levels]


def test_known_orders() -> None:
    found = tables(2000)
    (same,) = rank_agreement({"a": found, "b": found})
    assert same.correlation == pytest.approx(1.0)
    assert (same.low, same.high) == pytest.approx((1.0, 1.0))
    assert (same.decided, same.opposite) == (6, 0)
    (turned,) = rank_agreement({"a": found, "b": found[::-1]})
    assert turned.correlation == pytest.approx(-1.0)
    assert (turned.decided, turned.opposite) == (6, 6)
    # Levels that cannot be told apart: any order is possible, and the interval says so.
    (unsure,) = rank_agreement({"a": tables(60, (0.5,) * 4), "b": found})
    assert unsure.high - unsure.low > 0.8
    assert unsure.decided < 6
    with pytest.raises(UserError, match="at least three"):
        rank_agreement({"a": found[:2], "b": found[:2]})


@pytest.mark.parametrize(("kind", "scipys"), [("spearman", stats.spearmanr),
                                              ("kendall", stats.kendalltau)])  # fmt: skip
def test_the_correlation_is_scipys(kind: str, scipys) -> None:
    first, second = tables(40, seed=1), tables(40, (0.5, 0.3, 0.7, 0.6), seed=2)
    (found,) = rank_agreement({"a": first, "b": second}, kind=kind, resamples=20)
    scores = [[table[:, 0].mean() for table in side] for side in (first, second)]
    assert found.correlation == pytest.approx(scipys(*scores).statistic)


def test_a_setting_agrees_with_itself_where_images_decide() -> None:
    assert self_agreement(tables(2000), splits=5) == pytest.approx(1)
    # Of equal levels one half is high where the other is low.
    assert self_agreement(tables(60, (0.5,) * 6), splits=30) < 0


def test_cells_are_compared_over_the_models_that_both_settings_have() -> None:
    right = [np.arange(60) < level for level in (10, 25, 40, 55)]
    first = [clean_cell(name, "x", found) for name, found in zip("abcd", right, strict=True)]
    second = [clean_cell(name, "y", found) for name, found in zip("cba", right, strict=False)]
    (found,) = cell_agreement({"first": first, "second": second, "few": second[:2]})
    assert (found.models, found.correlation) == (3, -1.0)
    assert found.opposite == found.decided == 3


def test_corrupted_accuracy_is_relative_to_that_on_the_images_as_they_are() -> None:
    cell = clean_cell("a", "x", np.array([True, True, True, False]))
    for name, flags in (("fog:1", [1, 1, 0, 0]), ("fog:5", [1, 0, 0, 0])):
        cell.outcomes[name] = pack_bits(np.array(flags, dtype=bool))
    top, bottom, base = outcome_table(cell).mean(axis=0)
    assert top / bottom / base == pytest.approx((3 / 8) / (3 / 4))


def test_all_draws_at_once_correlate_as_one_by_one() -> None:
    draw = np.random.default_rng(0)
    first, second = (draw.integers(0, 4, (300, 5)).astype(float) for _ in range(2))  # with ties
    first[0] = 1.0
    found = _correlations(first, second, "spearman")
    expected = [stats.spearmanr(a, b).statistic if np.ptp(a) and np.ptp(b) else np.nan
                for a, b in zip(first, second, strict=True)]  # fmt: skip
    np.testing.assert_allclose(found, expected, atol=1e-12)
    second[:, 2] = np.nan
    kept = [0, 1, 3, 4]
    some = _correlations(first[:, kept], second[:, kept], "spearman")
    np.testing.assert_allclose(_correlations(first, second, "spearman"), some, atol=1e-12)
