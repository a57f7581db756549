"""The card of a model: time is dealt out as it was measured, words follow the numbers, and a second
start goes on with the same plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import stockpot
from commands import invoke
from stockpot.card import make
from stockpot.card.preset import Asked
from stockpot.card.timing import Pace, deal, pace
from stockpot.card.verdict import verdict
from stockpot.results.schema import (
    CellKey,
    CellResult,
    Cost,
    DataFacts,
    ModelFacts,
    Provenance,
    Score,
)

CLASSES = ["red", "green", "blue"]
MEAN = "mean_corruption_accuracy"


def test_a_pace_is_a_line_through_two_passes() -> None:
    assert pace(lambda n: 3.0 + 0.5 * n, (2, 6), 100) == Pace(3.0, 0.5)
    # A first pass that loads things is no slope: the second one alone tells.
    assert pace(lambda n: 9.0 if n == 2 else 1.2, (2, 6), 100) == pytest.approx((0.0, 0.2))
    assert pace(lambda n: 5.0, (16, 16), 4) == Pace(0.0, 1.25)


def test_minutes_are_dealt_out_by_shares() -> None:
    """100 s among three: what the first cannot use goes to the others by their shares."""
    asked = [Asked("clean", 0.2), Asked("corruption", 0.6), Asked("dynamic", 0.2)]
    paces = {"clean": Pace(0, 0.1), "corruption": Pace(10, 1.0), "dynamic": Pace(0, 0.5)}
    found = deal(asked, paces, 50, 100.0)
    # clean: all 50 in 5 s. Of 95 s, 71.25 for corruption (61 images, then all 50) and 23.75.
    assert found.images == {"clean": 50, "corruption": 50, "dynamic": 50}
    assert deal(asked, paces, 1000, 100.0).images == {"clean": 200, "corruption": 50, "dynamic": 40}
    spent = sum(paces[name].seconds(n) for name, n in found.images.items())
    assert spent <= 100
    slow = deal(asked, paces | {"dynamic": Pace(0, 5.0)}, 1000, 100.0)
    # 16 images of 5 s are more than twice its 20 s: left out, with the minutes that have room.
    assert "dynamic" not in slow.images
    assert slow.left_out["dynamic"] == "16 images would take 80 s; --minutes 5 has room for it"
    assert slow.images["corruption"] == 65  # (0.6 / 0.8 of 100 s less the 10 s) / 1 s


def cell(measure: str, scores: list[Score], n: int = 500) -> CellResult:
    return CellResult(
        key=CellKey(model="m", entry="m", measure=measure, data="d"),
        scores=scores,
        data=DataFacts(name="d", split="test", n=n, classes=10, fingerprint="d"),
        model=ModelFacts(name="m", source="m", fingerprint="m"),
        provenance=Provenance(stockpot="0"),
        cost=Cost(wall_seconds=1.0, device="cpu"),
        convention="adversarial:soups-cifar; steps=40",
    )


def share(metric: str, value: float, low: float, high: float, **condition: str | int) -> Score:
    return Score(metric=metric, value=value, n=500, ci_low=low, ci_high=high, condition=condition)


def test_words_follow_numbers_and_intervals() -> None:
    clean = share("accuracy", 0.8, 0.76, 0.84)
    errors = [
        Score(metric="error", value=value, n=500, condition={"corruption": name, "severity": 3})
        for name, value in (("fog", 0.2), ("snow", 0.6))
    ]
    found = verdict(
        [
            cell("clean", [clean]),
            # 0.72 of 0.8 is 90 %, and the low end 0.66 is 82.5 %: below the line of 85 %.
            cell(
                "corruption", [clean, share("mean_corruption_accuracy", 0.72, 0.66, 0.78), *errors]
            ),
            cell(
                "adversarial",
                [clean, share("robust_accuracy", 0.02, 0.01, 0.04, norm="linf", eps="8/255")],
                n=60,
            ),
        ],
        {"dynamic": "no time"},
    )
    assert found.line == "Right on 80 %; holds up under corruption (probably); falls to attack."
    assert any("worst: snow (40 % right)" in each for each in found.sentences)
    assert any("90 % of the 80 % without" in each for each in found.sentences)
    assert "dynamic: not measured (no time)" in found.sentences
    assert found.warnings == ["few images, so the intervals are wide: adversarial (60)"]
    poor = verdict([cell("clean", [share("accuracy", 0.12, 0.09, 0.15)])], {})
    assert poor.line == "Not clearly better than chance."


@pytest.fixture
def data(tmp_path: Path) -> Path:
    chance = np.random.default_rng(0)
    images = chance.integers(90, 100, (40, 16, 16, 3), dtype=np.uint8)
    labels = np.arange(40) % 3
    for row, label in enumerate(labels):
        images[row, ..., label] += 40
    np.savez(tmp_path / "colours.npz", images=images, labels=labels, classes=np.array(CLASSES))
    return tmp_path / "colours.npz"


def test_a_card_is_made_and_gone_on_with(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that is always right and cannot be moved; it can only be asked."""
    (tmp_path / "mine.py").write_text(
        "def make():\n    return lambda pixels: 50 * pixels.mean((2, 3))\n", encoding="utf-8"
    )
    out = tmp_path / "card"
    short = make.preset(stockpot.load_model(lambda p: p.mean((2, 3)), size=16))
    params = {
        "corruption": {"corruptions": "brightness", "severities": 1, "baseline": "none"},
        "adversarial": short[4].params | {"steps": 5, "eps": "1/255"},
    }
    preset = [
        replace(one, params=params.get(one.measure, one.params), timed=(8, 16), least=4)
        for one in short
    ]
    monkeypatch.setattr(make, "preset", lambda model: preset)
    words = (
        "card",
        f"mine={tmp_path / 'mine.py'}:make",
        "--data",
        data,
        "--minutes",
        30,
        "-o",
        out,
    )
    options = ("-m", "size=16", "-m", f"classes={','.join(CLASSES)}")
    done = invoke(*words, *options)
    assert done.exit_code == 0, done.output
    assert "Right on 100 %; holds up under corruption; withstands attack" in done.output
    assert "dynamic: not measured (" in done.output
    assert "no gradients" in done.output
    plan = make.Plan.model_validate_json((out / "card.json").read_bytes())
    assert {name: one.images for name, one in plan.measures.items()} == {
        "clean": 40, "calibration": 40, "cost": 16, "corruption": 40, "adversarial": 40,
    }  # fmt: skip
    assert "Right on 100 %" in (out / "card.md").read_text(encoding="utf-8")
    assert "Right on 100 %" in (out / "report.html").read_text(encoding="utf-8")
    files = {file: file.stat().st_mtime_ns for file in (out / "results").glob("*.json")}
    assert len(files) == 5
    monkeypatch.setattr(make, "pace", None)  # nothing is timed again
    again = invoke(*words, *options)
    assert again.exit_code == 0, again.output
    assert {file: file.stat().st_mtime_ns for file in (out / "results").glob("*.json")} == files
