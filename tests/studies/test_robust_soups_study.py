"""Choosing among soups between which there is nothing to find."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from stockpot.season.conditions import Conditions
from stockpot.season.grids import affine_grid
from stockpot.season.matrix import Matrix

Part = Callable[[str, str], ModuleType]
N = 2000


def coins(weights: np.ndarray, seed: int) -> Matrix:
    """Every soup tosses its own coin for every image."""
    correct = np.random.default_rng(seed).random((len(weights), N)) < 0.5
    return Matrix(weights, correct, (~correct).astype(np.float32))


def test_what_is_chosen_on_one_half_of_the_images_is_scored_on_the_other(
    part: Part, tmp_path: Path
) -> None:
    tables = part("robust_soups", "tables")
    soups = affine_grid(4, low=0.0, high=1.0, step=0.2).numpy()
    parts = {"shift": soups, "alone": np.eye(4), "ensemble": np.full((1, 4), 0.25)}
    for at, (name, weights) in enumerate(parts.items()):
        cells = ("source", "clean", "fog:5", "contrast:5")
        found = {cell: coins(weights, 10 * at + k) for k, cell in enumerate(cells)}
        Conditions(found, {"members": list("abcd"), "label_free": []}).save(tmp_path / name)
    shifted = tables.Shifted(tmp_path)
    rows = shifted.selection()
    assert [row["cell"] for row in rows] == ["fog:5", "contrast:5"]
    for row in rows:
        # The best of 56 coins on the images that score them has luck, and nobody else.
        assert np.mean(row["oracle"]) > 52
        for way in ("best member", "ensemble", "source", "10-shot", "100-shot"):
            assert np.mean(row[way]) == pytest.approx(50, abs=4)
    labels = shifted.labels(draws=5)
    assert labels["shots"][-1] == N // 2
    assert all(value == pytest.approx(50, abs=4) for value in labels["mean"].values())
    racing = shifted.racing(draws=3)
    assert racing["share of the grid (%)"] < 50
    assert racing["mean gap (points)"] == pytest.approx(0, abs=4)
    found = {"toy": {"labels": labels, "racing": racing, "selection": rows}}
    assert f"{N // 2} labels" in tables.labels_table(found)
    assert "| `toy` | 6 |" in tables.racing_table(found)
