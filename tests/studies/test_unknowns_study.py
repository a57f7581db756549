"""The study of unknowns: its second run sees other images, its claims follow the plan's rule."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from pico import make_classifier, make_dataset
from stockpot.datasets.dataset import limited_rows
from stockpot.measure.measurement import Context
from stockpot.measure.unknown.answers import answers_of
from unknown.test_ood import Headed

PLAN = Path(__file__).parents[2] / "studies" / "unknowns" / "plan.md"
Part = Callable[[str, str], ModuleType]


def test_no_image_is_seen_twice(part: Part) -> None:
    measured = part("unknowns", "measured")
    data = make_dataset(40)
    rest = measured.unseen(data, 15)
    seen = set(limited_rows(40, 15).tolist())
    others = [row for row in range(40) if row not in seen]
    assert len(rest) == 25
    assert rest.fingerprint == data.take(others).fingerprint
    recipe = (PLAN.parents[2] / "recipes" / "unknowns.yaml").read_text(encoding="utf-8")
    for name, count in measured.SEEN.items():
        assert f"dataset: {name}, {'split: test, ' if name == 'cifar10' else ''}limit: {count}" in (
            recipe
        )


def test_the_claims_are_those_of_the_plan(part: Part) -> None:
    claims = part("unknowns", "claims")
    planned = re.findall(r"^\| (\d+) (.+?) \| .*? \| .*? \| (.+?) \|$", PLAN.read_text(), re.M)
    assert [int(number) for number, _, _ in planned] == list(claims.CLAIMS)
    for number, words, margin in planned:
        claim = claims.CLAIMS[int(number)]
        assert claim.words.removesuffix(" (ours)") == words
        assert claim.alike == ("within" in margin)
        stated = re.search(r"[\d.]+(?= points?)", margin)
        assert claim.margin == pytest.approx(float(stated[0]) / 100 if stated else 0)


def row(low: float, high: float, wider: float = 0.0) -> dict[str, Any]:
    ends = {"low": low, "high": high, "low together": low - wider, "high together": high + wider}
    return {"claim": 1, "of": "", "value": (low + high) / 2, **ends}


def test_the_rule(part: Part) -> None:
    claims = part("unknowns", "claims")
    above, alike = claims.Claim("", 0.0), claims.Claim("", 0.02, alike=True)
    assert claims.judged(above, [row(0.01, 0.02, 0.05), row(0.1, 0.2)]) == "held"
    assert claims.judged(above, [row(-0.01, 0.02), row(0.1, 0.2)]) == "not told apart"
    # One that lies below must do so with the interval that is wide enough for all.
    assert claims.judged(above, [row(-0.02, -0.01, 0.05), row(0.1, 0.2)]) == "not told apart"
    assert claims.judged(above, [row(-0.2, -0.1, 0.05), row(0.1, 0.2)]) == "did not hold"
    assert claims.judged(alike, [row(-0.01, 0.015), row(0.0, 0.01)]) == "held"
    assert claims.judged(alike, [row(-0.01, 0.025)]) == "not told apart"
    assert claims.judged(alike, [row(-0.06, -0.03, 0.005)]) == "did not hold"
    assert claims.judged(alike, [row(-0.06, -0.021, 0.005)]) == "not told apart"


def test_differences_are_of_the_same_draws(part: Part) -> None:
    """Detectors that say the same differ by nothing at all, whatever images are drawn."""
    claims = part("unknowns", "claims")
    chance = np.random.default_rng(0)
    right = chance.random(300) < 0.8
    common = {"inside": chance.normal(1.0, 1.0, 300) + right}
    common |= {held: chance.normal(0.0, 1.0, 200) for held in claims.FRESH_SETS}
    kept: dict[str, Any] = {
        f"{place}/{name}": scores + (9.0 if name == "vim" and place == "inside" else 0.0)
        for place, scores in common.items()
        for name in ("msp", "max_logit", "energy", "knn", "vim", "ash_s")
    }
    kept |= {"correct": right, "confidence": np.full(300, 0.9), "nll": np.ones(150),
             "nll_scaled": np.full(150, 0.5)}  # fmt: skip
    for name, size in (("lac", 1), ("aps", 2)):
        kept |= {f"covered_{name}": np.arange(150) % 10 > 0, f"size_{name}": np.full(150, size)}
    rows = claims.claim_rows(dict.fromkeys(("nominal", "l2", "linf"), kept), resamples=50)
    said = {
        number: claims.judged(claim, [row for row in rows if row["claim"] == number])
        for number, claim in claims.CLAIMS.items()
    }
    assert {n for n, found in said.items() if found == "held"} == {1, 3, 6, 12, 14}
    for number in (2, 4, 5, 6, 7, 8, 9):
        own = [row for row in rows if row["claim"] == number]
        assert {(row["value"], row["low"], row["high"]) for row in own} == {(0.0, 0.0, 0.0)}


def test_what_is_fitted_on_one_half_is_judged_on_the_other(part: Part) -> None:
    measured = part("unknowns", "measured")
    answers = answers_of(make_classifier(Headed()), make_dataset(200), Context(), "inside")
    kept = measured.judged_half(answers)
    assert {len(values) for values in kept.values()} == {100}
    for method in measured.SETS_BY:
        covered, sizes = kept[f"covered_{method}"], kept[f"size_{method}"]
        assert covered.dtype == bool
        assert 0.75 <= covered.mean() <= 1
        assert not (covered & (sizes == 0)).any()
