"""Rank agreement, against scipy and known orders."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from stockpot.errors import UserError
from stockpot.results.agreement import accuracy_table, rank_agreement, self_agreement

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
