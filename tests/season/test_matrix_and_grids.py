"""Grids counted by brute force; selection as arithmetic on a matrix made by hand."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from stockpot.errors import UserError
from stockpot.season.grids import affine_grid
from stockpot.season.matrix import Matrix, single_soup


@pytest.mark.parametrize(
    ("members", "low", "high", "count"),
    [(4, -0.4, 1.4, 480), (3, -0.4, 1.4, 69), (3, 0.0, 1.0, 21), (4, 0.0, 1.0, 56)],
)
def test_grid_counts(members, low, high, count) -> None:
    grid = affine_grid(members, low=low, high=high, step=0.2).numpy()
    units = range(round(low * 5), round(high * 5) + 1)
    want = {row for row in product(units, repeat=members) if sum(row) == 5}
    assert {tuple(row) for row in np.rint(grid * 5).astype(int).tolist()} == want
    assert len(grid) == len(want) == count
    assert np.abs(grid.sum(axis=1) - 1).max() < 1e-12
    assert np.abs(grid * 5 - np.rint(grid * 5)).max() < 1e-12
    for index in range(members):  # the members themselves are exact
        assert any((row == np.eye(members)[index]).all() for row in grid)


def test_grids_that_make_no_sense() -> None:
    with pytest.raises(UserError, match="multiples"):
        affine_grid(3, low=-0.3, high=1.4, step=0.2)
    with pytest.raises(UserError, match="sum to 1"):
        affine_grid(2, low=0.0, high=0.4, step=0.2)
    with pytest.raises(UserError, match="above 0"):
        affine_grid(2, low=0.0, high=1.0, step=0.0)
    with pytest.raises(UserError, match="more than"):
        affine_grid(6, low=-1.0, high=2.0, step=0.05)


def by_hand() -> Matrix:
    weights = np.array([[1.0, 0.0], [0.6, 0.4], [0.0, 1.0], [-0.2, 1.2]])
    correct = np.array([[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]], dtype=bool)
    loss = np.where(correct, 0.5, 2.0).astype(np.float32)
    loss[2] += 0.1
    return Matrix(weights, correct, loss)


def test_selection_is_column_arithmetic(tmp_path: Path) -> None:
    matrix = by_hand()
    assert matrix.accuracy().tolist() == [0.5, 0.75, 0.75, 0.5]
    assert matrix.best() == 1  # soups 1 and 2 tie; 1 has the lower loss
    assert matrix.best([3]) == 3  # 2 and 3 tie on the last image; 3 has the lower loss
    assert matrix.best([3], ties="first") == 2
    assert {matrix.best(ties="random", seed=seed) for seed in range(20)} == {1, 2}
    assert matrix.best([1], ties="centroid") == 1  # of 0, 1, 2 the middle one
    assert matrix.top(2).tolist() == [1, 2]
    shares = matrix.composition([0.4, 1.0, -0.2], count=2)
    assert shares.tolist() == [[0.5, 1.0], [0.0, 0.5], [0.0, 0.0]]
    assert matrix.composition([-0.2], count=4).tolist() == [[0.25, 0.0]]
    matrix.save(tmp_path / "m.npz")
    again = Matrix.read(tmp_path / "m.npz")
    for name in ("weights", "correct", "loss"):
        assert np.array_equal(getattr(again, name), getattr(matrix, name))


def test_few_shot_scores_are_held_out() -> None:
    # The right soup on seen images is always wrong on the others: what is seen never scores.
    correct = np.eye(6, dtype=bool)
    matrix = Matrix(np.zeros((6, 2)), correct, np.zeros((6, 6), np.float32))
    assert matrix.few_shot(1, held_out=5, draws=10).tolist() == [0.0] * 10
    assert np.array_equal(
        by_hand().few_shot(2, held_out=2, draws=9, seed=1),
        by_hand().few_shot(2, held_out=2, draws=9, seed=1),
    )
    with pytest.raises(UserError, match="shots"):
        matrix.few_shot(3, held_out=4)


def test_a_single_soup_for_several_datasets() -> None:
    first = by_hand()
    second = Matrix(first.weights, first.correct[::-1].copy(), first.loss)
    # Means: 0.5, 0.75, 0.75, 0.5 and its mirror image; of the best the one with the lower loss.
    assert single_soup([first, second]) == 1
    assert single_soup([first], [[3]]) == 3
