"""The rules of the study of robust soups, on soups between which there is nothing to find."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from stockpot.season.conditions import Conditions
from stockpot.season.grids import affine_grid
from stockpot.season.matrix import Matrix
from stockpot.season.robust import line

Part = Callable[[str, str], ModuleType]
N = 300


def coins(weights: np.ndarray, chance: float | np.ndarray, seed: int) -> Matrix:
    """Every soup tosses its own coin for every image."""
    tossed = np.random.default_rng(seed).random((len(weights), N))
    correct = tossed < np.broadcast_to(chance, len(weights))[:, None]
    return Matrix(weights, correct, (~correct).astype(np.float32))


def everywhere(tables: ModuleType, study: ModuleType, chance: float | np.ndarray) -> Conditions:
    weights = study.soups_of_interest().numpy()
    matrices = {n: coins(weights, chance, k) for k, n in enumerate(tables.ALL)}
    return Conditions(matrices, {"members": list(tables.SOUPED)})


def test_equal_soups_give_no_verdict(part: Part) -> None:
    tables, study = part("robust_soups", "tables"), part("robust_soups", "study")
    soups = everywhere(tables, study, 0.5)
    both = {name: coins(np.ones((1, 1)), 0.5, 9 + k) for k, name in enumerate(tables.ALL)}
    joint = {"max": Conditions(both, {})}
    # The first winner of a draw, and the largest of twenty differences, prove nothing.
    assert tables.extrapolation(soups)["verdict"] == "not told apart"
    assert tables.best_union(soups)["verdict"] == "not told apart"
    assert tables.interior_beats_specialist(soups)["verdict"] == "not told apart"
    assert tables.joint_training(soups, joint)["verdict"] == "not told apart"


def test_what_is_there_is_found(part: Part) -> None:
    tables, study = part("robust_soups", "tables"), part("robust_soups", "study")
    weights = study.soups_of_interest().numpy()
    outside = ((weights < -1e-9) | (weights > 1 + 1e-9)).any(axis=1)
    better = everywhere(tables, study, np.where(outside, 0.9, 0.4))
    assert tables.extrapolation(better)["verdict"] == "held"
    worse = everywhere(tables, study, np.where(outside, 0.1, 0.6))
    assert tables.extrapolation(worse)["verdict"] == "did not hold"
    with_l2 = everywhere(tables, study, np.where(weights[:, 1] > 1e-9, 0.2, 0.6))
    assert tables.best_union(with_l2)["verdict"] == "held"
    ends = line(0, 1, 0.2, 2, 0, 1).numpy()
    broken = coins(ends, np.array([0.7, 0.1, 0.1, 0.1, 0.1, 0.7]), 3)
    assert tables.control(Conditions({"clean": broken}, {}))["verdict"] == "held"
    whole = coins(ends, 0.7, 3)
    assert tables.control(Conditions({"clean": whole}, {}))["verdict"] == "did not hold"


def test_cells_of_the_same_images_are_no_further_evidence(part: Part, tmp_path: Path) -> None:
    tables = part("robust_soups", "tables")
    soups = affine_grid(4, low=0.0, high=1.0, step=0.5).numpy()
    alone = np.eye(4)
    one = {"shift": coins(soups, 0.6, 1), "alone": coins(alone, 0.5, 2),
           "ensemble": coins(np.full((1, 4), 0.25), 0.55, 3)}  # fmt: skip
    widths = {}
    for copies in (1, 9):
        for name, matrix in one.items():
            cells = {f"fog:{level}": matrix for level in range(1, copies + 1)}
            kept = {"source": matrix, "clean": matrix, **cells}
            facts = {"members": list(tables.SOUPED), "label_free": []}
            Conditions(kept, facts).save(tmp_path / str(copies) / name)
        shifted = tables.Shifted(tmp_path / str(copies))
        found = shifted.single_against_ensemble()
        mean = shifted.soups_beat_members()["mean gain"]
        widths[copies] = [
            each["high"] - each["low"]
            for each in (found["single minus ensemble"], found["single"], found["ensemble"], mean)
        ]
    assert widths[9] == pytest.approx(widths[1], rel=0.02)
