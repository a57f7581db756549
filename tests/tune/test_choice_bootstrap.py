"""What a choice is worth: trials that are all alike gain nothing from being many."""

from __future__ import annotations

import numpy as np
import pytest

from stockpot.tune.selection import balanced, front_of, selection


def test_the_best_of_many_equal_ones_is_no_better() -> None:
    """Fifty coins on 200 images: the best looks better than one half, and the choice is not."""
    generator = np.random.default_rng(0)
    looked, worth, held = [], [], []
    for _ in range(40):
        flags = generator.random((50, 200)) < 0.5
        found = selection([flags], resamples=100)
        looked.append(flags.mean(axis=1).max())
        worth.append(found.value)
        held.append(found.low <= 0.5 <= found.high)
        assert found.optimism == pytest.approx(looked[-1] - found.value)
    assert np.mean(looked) > 0.57
    assert np.mean(worth) == pytest.approx(0.5, abs=0.015)
    assert np.mean(held) > 0.9


def test_a_clear_winner_is_chosen_every_time() -> None:
    generator = np.random.default_rng(1)
    flags = np.stack([generator.random(400) < share for share in (0.3, 0.8, 0.4)])
    found = selection([flags], seed=0)
    assert found.share == 1.0
    assert found.value == pytest.approx(flags[1].mean(), abs=0.005)
    spread = 1.96 * np.sqrt(0.8 * 0.2 / 400)
    assert spread < found.high - found.value < 3 * spread, "fewer images are left than there are"


def test_the_worst_task_decides_where_it_is_asked_for() -> None:
    easy = np.array([[True] * 40, [True] * 30 + [False] * 10])
    hard = np.array([[False] * 30 + [True] * 10, [True] * 25 + [False] * 15])
    assert selection([easy, hard]).value == pytest.approx(0.6875, abs=0.05)
    assert selection([easy, hard], worst=True).value == pytest.approx(0.61, abs=0.05)


def test_the_front_is_what_nothing_beats() -> None:
    values = np.array([[0.9, 0.1], [0.5, 0.5], [0.4, 0.4], [0.1, 0.9], [0.5, 0.5], [0.9, 0.05]])
    assert front_of(values) == [0, 1, 3, 4]
    assert balanced(values[[0, 1, 3]]) == 1
    for row in np.random.default_rng(2).random((3, 30, 3)):
        kept = front_of(row)
        for index in range(30):  # the definition, pair by pair
            beaten = any(
                all(a >= b for a, b in zip(other, row[index], strict=True))
                and any(other > row[index])
                for other in row
            )
            assert (index in kept) == (not beaten)
