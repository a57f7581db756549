"""What people say of the photographs: statistics on answers of which it is known what they say."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stockpot.datasets.dataset import limited_rows
from stockpot.results.packed import pack_bits

Part = Callable[[str, str], Any]
IMAGES, TESTED, ALL = 40, 80, 200


@pytest.fixture
def people(part: Part) -> Any:
    return part("fmr/photographs", "people")


def test_the_entropy_of_labels(people: Any) -> None:
    counts = np.array([[50.0, 0, 0], [25.0, 25, 0], [10.0, 10, 10]])
    assert people.entropy(counts) == pytest.approx([0, np.log(2), np.log(3)])


def test_a_correlation_counts_images_as_often_as_they_were_drawn(people: Any) -> None:
    first, second = np.array([1.0, 2.0, 3.0, 9.0]), np.array([3.0, 5.0, 7.0, 0.0])
    assert people.spearman(first, second, np.array([1.0, 2.0, 1.0, 0.0])) == pytest.approx(1)
    assert people.spearman(first, np.ones(4), np.ones(4)) == 0


def test_claims_follow_from_the_outcomes(people: Any) -> None:
    """The second oracle is wrong on what is unclear; networks break on what is clear."""
    unclear = np.random.default_rng(0).random(ALL)
    shown = unclear[limited_rows(ALL, TESTED, seed=1).numpy()]
    around = unclear[limited_rows(ALL, IMAGES, seed=0).numpy()]
    cells: dict[str, Any] = {"clean": {"oracle-first": pack_bits(np.ones(TESTED, bool)),
                                       "oracle-second": pack_bits(shown < 0.7)}}  # fmt: skip
    for place, name in enumerate(
        people.cell_name(kind, seed, generator)
        for generator in people.AUTOENCODERS
        for kind in people.KINDS
        for seed in people.SEEDS
    ):
        level = place / 36
        cells[name] = {
            "validated": pack_bits(np.arange(IMAGES) > 3),
            "correct": pack_bits(np.arange(IMAGES) > 9),
            "seen oracle-second": pack_bits(around < level),
            "withstood": pack_bits(around > level),
        }
    outcomes = {"images": IMAGES, "data": {people.DATA: {"tested": TESTED, "cells": cells}}}
    told = people.found_by(unclear, outcomes)
    assert told["P1"]["images"] == TESTED
    assert told["P1"]["of them"] == int((shown >= 0.7).sum())
    assert told["P1"]["value"] == pytest.approx(
        shown[shown >= 0.7].mean() - shown[shown < 0.7].mean(), abs=1e-4
    )
    assert (told["P2"]["images"], told["P3"]["images"]) == (IMAGES - 4, IMAGES - 10)
    table = people.people_table(told).splitlines()[2:]
    assert [line.rsplit("**")[-2] for line in table] == ["held", "held", "did not hold"]


def test_nothing_of_the_labels_is_kept_by_the_image(people: Any) -> None:
    kept = json.loads((people.HERE / "people.json").read_text(encoding="utf-8"))
    assert kept.keys() == {"agree", *people.CLAIMS}
    assert all(isinstance(v, int | float) for c in people.CLAIMS for v in kept[c].values())
