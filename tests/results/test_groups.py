"""Means over datasets and runs, against closed forms; and the chart made of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hand_made import clean_cell
from stockpot.report.page import render
from stockpot.report.sections.scatter import Axes, scatter_section
from stockpot.results.groups import group_means
from stockpot.results.packed import pack_bits
from stockpot.results.schema import CellResult


def flags(rate: float, n: int = 400, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(n) < rate


def cells() -> list[CellResult]:
    found = [clean_cell("zero", data, flags(0.6, seed=1)) for data in ("in", "out")]
    for seed in range(3):
        found.append(clean_cell("tuned", "in", flags(0.9, seed=10 + seed), seed=seed))
        found.append(clean_cell("tuned", "out", flags(0.5, seed=20 + seed), seed=seed))
    return found


def test_means_over_runs_and_datasets() -> None:
    found = group_means(cells(), ["in", "out"])
    assert list(found) == ["zero", "tuned"]
    runs = [(flags(0.9, seed=10 + s).mean() + flags(0.5, seed=20 + s).mean()) / 2 for s in range(3)]
    assert found["tuned"].runs == pytest.approx(runs)
    assert found["tuned"].value == pytest.approx(np.mean(runs))
    assert found["tuned"].n == 800
    assert "runs" in found["tuned"].interval.method
    assert "runs" not in found["zero"].interval.method


def test_the_interval_of_one_run_is_that_of_a_proportion() -> None:
    found = group_means(cells(), ["out"])["zero"]
    p = found.value
    half = 1.96 * math.sqrt(p * (1 - p) / 400)
    assert found.interval.low == pytest.approx(p - half, abs=0.008)
    assert found.interval.high == pytest.approx(p + half, abs=0.008)


def test_the_spread_of_runs_widens_the_interval() -> None:
    near = [clean_cell("a", "in", flags(0.5, seed=7), seed=s) for s in range(3)]
    far = [
        clean_cell("a", "in", flags(rate, seed=7), seed=s) for s, rate in enumerate((0.3, 0.5, 0.7))
    ]
    widths = []
    for group in (near, far):
        interval = group_means(group, ["in"])["a"].interval
        widths.append(interval.high - interval.low)
    assert widths[1] > 1.5 * widths[0]


def test_the_same_objects_in_two_datasets_are_drawn_together() -> None:
    """Answers that agree image by image say no more twice than once; unrelated ones do."""
    right = flags(0.5, seed=3)
    widths = {}
    for name, second in (("same", right), ("other", flags(0.5, seed=4)), ("against", ~right)):
        found = group_means(
            [clean_cell("a", "in", right), clean_cell("a", "out", second)], ["in", "out"]
        )["a"]
        widths[name] = found.interval.high - found.interval.low
    once = group_means([clean_cell("a", "in", right)], ["in"])["a"].interval
    assert widths["same"] == pytest.approx(once.high - once.low)
    assert widths["other"] == pytest.approx(widths["same"] / math.sqrt(2), rel=0.1)
    assert widths["against"] == pytest.approx(0, abs=1e-6)


def test_names_are_not_read_as_seeds() -> None:
    patches = [clean_cell(f"vit-s{p}", "in", flags(0.5, seed=p)) for p in (16, 32)]
    assert list(group_means(patches, ["in"])) == ["vit-s16", "vit-s32"]


def test_models_without_every_dataset_are_left_out() -> None:
    assert "zero" not in group_means(cells()[1:], ["in", "out"])


def test_a_dataset_under_corruptions_counts_by_their_mean() -> None:
    first, second, clean = flags(0.8, seed=1), flags(0.4, seed=2), flags(0.9, seed=3)
    measured = clean_cell("a", "c", clean)
    corrupted = measured.model_copy(
        update={
            "key": measured.key.model_copy(update={"measure": "corruption"}),
            "outcomes": {
                "correct": pack_bits(clean), "fog:1": pack_bits(first), "fog:2": pack_bits(second)
            },
        }
    )  # fmt: skip
    found = group_means([corrupted], ["c"])["a"]
    assert found.value == pytest.approx((first.mean() + second.mean()) / 2)
    assert found.n == 400
    both = group_means([measured, corrupted], ["c"])["a"]
    assert both.value == pytest.approx(clean.mean())  # as they are, where that was measured


def test_the_chart_has_a_point_per_model_and_the_page_its_table() -> None:
    section = scatter_section(cells(), Axes(["in"], ["out"]))
    assert section is not None
    assert [row.name for row in section.rows] == ["zero", "tuned"]  # best outside first
    assert section.chart.count('r="8.5"') == 2
    assert section.chart.count('r="2"') == 3
    page = render(
        cells(), title="t", axes=[Axes(["in"], ["out"], "First"), Axes(["out"], ["in"], "Second")]
    )
    assert page.index("<h3>First</h3>") < page.index("<h3>Second</h3>")
    assert page.count('r="8.5"') == 4
    assert 'id="scatter"' in page
    assert 'id="scatter"' not in render(cells(), title="t")
    assert scatter_section(cells(), Axes(["in"], ["nowhere"])) is None


def test_many_models_are_compared_with_the_best() -> None:
    many = [clean_cell(f"m{i}", "in", flags(0.3 + 0.03 * i, n=60, seed=i)) for i in range(16)]
    page = render(many, title="t")
    assert page.count('data-label="verdict"') == 15
    assert "compared with the best alone" in page
