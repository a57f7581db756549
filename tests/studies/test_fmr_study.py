"""The rule of studies/fmr/plan.md, by hand and against scipy."""

from __future__ import annotations

from collections.abc import Callable
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
