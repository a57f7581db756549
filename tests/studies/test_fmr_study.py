"""The rule of studies/fmr/plan.md, by hand and against scipy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from stockpot.results.packed import pack_bits

Part = Callable[[str, str], Any]


@pytest.fixture
def claims(part: Part) -> Any:
    return part("fmr", "claims")


def difference(claims: Any, seeds: tuple[float, ...], low: float, high: float) -> Any:
    values = [np.mean(seeds), *seeds, *np.linspace(low, high, 1001)]
    return claims.Part("mnist", "x", np.array(values))


def test_a_difference_needs_its_interval_and_every_seed(claims: Any) -> None:
    assert difference(claims, (1, 2, 3), 0.1, 4).said() == "held"
    assert difference(claims, (-0.1, 2, 3), 0.1, 4).said() == "not told apart"
    assert difference(claims, (1, 2, 3), -0.5, 4).said() == "not told apart"
    assert difference(claims, (-1, -2, -3), -4, -0.1).said() == "did not hold"
    assert difference(claims, (-1, 0.1, -3), -4, -0.1).said() == "not told apart"


def test_all_differences_must_hold_and_one_may_end_a_claim(claims: Any) -> None:
    above = difference(claims, (1, 2, 3), 0.1, 4)
    below = difference(claims, (-1, -2, -3), -4, -0.1)
    # 1.5 % of these draws lie above 0: few enough for 95 %, not for 95 % of two together.
    nearly = difference(claims, (-1, -2, -3), -3.94, 0.06)
    assert claims.Finding("G1", (above, above)).verdict == "held"
    assert claims.Finding("G1", (above, below)).verdict == "did not hold"
    assert nearly.said() == "did not hold"
    assert claims.Finding("G1", (above, nearly)).verdict == "not told apart"


def test_correlations_are_spearmans(claims: Any) -> None:
    first, second = np.random.default_rng(0).random((2, 6, 5)).round(1)  # with ties
    found = claims.correlation(list(first), list(second))
    expected = [spearmanr(first[:, place], second[:, place]).statistic for place in range(5)]
    assert np.allclose(found, expected)


def test_both_accuracies_stand_on_the_validated_images(claims: Any) -> None:
    kept = np.array([1, 1, 1, 1, 0, 0] * 8, bool)
    correct = np.array([1, 1, 1, 0, 1, 1] * 8, bool)
    cells = {}
    for seed, stood in enumerate(([1, 0, 0, 0, 1, 1], [1, 1, 0, 0, 1, 1], [1, 1, 1, 0, 1, 1])):
        flags = {"validated": kept, "correct": correct, "withstood": np.array(stood * 8, bool)}
        name = claims.cell_name("plain", seed, "vqgan")
        cells[name] = {key: pack_bits(value) for key, value in flags.items()}
    own = {"tested": 0, "labels": "001122" * 8, "steps": {}, "cells": cells}
    known = claims.Answers("mnist", {"images": 48, "data": {"mnist": own}}, ("plain",))
    # Of three images that were right, 1, 2 and 3 stood.
    assert np.allclose(known.fmr("plain", "vqgan")[:4], [2 / 3, 1 / 3, 2 / 3, 1])
    assert not known.complete("G1")
    # Classes 0 and 1 have validated images: 2 of 2 in class 0 (pooled 5 / 6), 1 of 1 in class 1.
    spread = known.spread("plain", "vqgan", "main")
    assert np.isclose(spread[0], np.std([5 / 6, 1 / 3]))


@pytest.mark.usefixtures("little_sets")
def test_a_toy_run_on_digits_makes_every_cell(
    part: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = part("fmr", "study")
    few = {"epochs": 1, "batch_size": 8}
    kinds = {name: study.KINDS[name] | few for name in ("plain", "pgd")}
    changed = {
        "KINDS": kinds, "IMAGES": 6, "TESTED": range(16), "JUDGING": range(16),
        "PILOT": range(20, 24),
        "JUDGES": {name: recipe | few for name, recipe in study.JUDGES.items()},
    }  # fmt: skip
    for name, value in changed.items():
        monkeypatch.setattr(study, name, value)

    class Formulas:
        """In place of autoencoders, which learn from more images than there are."""

        def generator(self, name: str) -> Any:
            return study.generators.get("colour" if name in study.LEARNED else name)()

    toy = study.Study(tmp_path, "mnist", Formulas())
    toy.budget = 2
    toy.tries = {"vqgan": (0.1,), "kl": (0.1,)}
    toy.trained()
    toy.measured(float("inf"))
    made = {path.stem for path in (tmp_path / "mnist" / "cells").glob("*.json")}
    assert made == {name.replace("/", "-") for name, _ in toy.cells()}
    assert toy.steps["warp"] == study.generators.get("warp")().step
