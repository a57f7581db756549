"""Soups under several conditions: kept in a folder, added to, and found on a line."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stockpot.season.conditions import Conditions
from stockpot.season.matrix import Matrix


def matrix(weights: list[list[float]], seed: int) -> Matrix:
    generator = np.random.default_rng(seed)
    correct = generator.random((len(weights), 11)) < 0.5
    return Matrix(np.array(weights), correct, generator.random(correct.shape).astype(np.float32))


def test_what_is_saved_comes_back_with_more_soups(tmp_path: Path) -> None:
    names = ("clean", "linf 8/255", "linf-8 255")  # no two share a file
    first = {name: matrix([[1.0, 0.0]], seed) for seed, name in enumerate(names)}
    more = {name: matrix([[0.5, 0.5], [0.0, 1.0]], seed) for seed, name in enumerate(names)}
    assert Conditions.read(tmp_path) is None
    Conditions(first, {"members": ["a", "b"]}).with_soups(more).save(tmp_path)
    found = Conditions.read(tmp_path)
    assert found is not None
    assert found.facts == {"members": ["a", "b"]}
    assert list(found.matrices) == list(names)
    for name in names:
        for field in ("weights", "correct", "loss"):
            parts = [getattr(part[name], field) for part in (first, more)]
            assert np.array_equal(getattr(found.matrices[name], field), np.concatenate(parts))


def test_a_line_holds_the_soups_of_two_members_in_order() -> None:
    weights = [[0, 0, 1], [0.5, 0, 0.5], [1.2, 0, -0.2], [0.2, 0.6, 0.2], [1, 0, 0], [-0.2, 0, 1.2]]
    found = Conditions({"clean": matrix(weights, 0)}, {})
    assert found.line(0, 2) == [4, 1, 0]
    assert found.line(2, 0) == [0, 1, 4]
    assert found.line(0, 2, -0.4, 1.4) == [2, 4, 1, 0, 5]
    assert found.line(0, 1) == [4]
