"""Paired comparisons and verdicts, against closed forms, scipy and simulation."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import stockpot
from commands import invoke
from hand_made import clean_cell
from stockpot.errors import BadParameterError, UserError
from stockpot.measure.rescore import rescored
from stockpot.report.sections.pairs import comparisons
from stockpot.results.contrast import (
    Contrast,
    Contrasts,
    Pair,
    choose_then_judge,
    every_exceed,
    halves,
    mean_contrast,
    paired,
    some_exceed,
    verdict,
)
from stockpot.results.groups import by_group, group_means
from stockpot.results.packed import pack_bits, pack_groups, unpack_groups
from stockpot.results.schema import CellResult
from stockpot.results.statistics import bootstrap_mean, paired_bootstrap, wilson
from stockpot.results.store import ResultStore, load_results


def flags(rate: float, n: int = 400, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(n) < rate


def test_the_interval_is_that_of_mcnemars_table() -> None:
    """With b and c discordant pairs the difference has variance (b + c - (b - c)^2 / n) / n^2."""
    a, b = flags(0.7, 2000, 1), flags(0.64, 2000, 2)
    found = paired(a, b)
    only_a, only_b, n = int((a & ~b).sum()), int((b & ~a).sum()), len(a)
    value = (only_a - only_b) / n
    half = 1.96 * np.sqrt(only_a + only_b - (only_a - only_b) ** 2 / n) / n
    assert found.value == pytest.approx(value)
    assert (found.low, found.high) == pytest.approx((value - half, value + half), abs=0.002)


def test_the_interval_is_scipys() -> None:
    a, b = flags(0.8, 500, 3).astype(float), flags(0.75, 500, 4).astype(float)
    ours = paired(a, b)
    theirs = stats.bootstrap((a - b,), np.mean, method="percentile", n_resamples=4000,
                             rng=np.random.default_rng(0)).confidence_interval  # fmt: skip
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.005)


def test_groups_of_copies_count_once() -> None:
    """Each image four times over says no more than each once; singly drawn it would seem to."""
    a, b = flags(0.8, 150, 5), flags(0.7, 150, 6)
    once = paired_bootstrap(a, b)
    copies = [np.repeat(side, 4) for side in (a, b)]
    grouped = paired_bootstrap(*copies, groups=np.repeat(np.arange(150), 4))
    assert grouped[:4] == pytest.approx(once[:4])
    assert (grouped.n, grouped.clusters) == (600, 150)
    singly = paired_bootstrap(*copies)
    assert singly.high - singly.low == pytest.approx((once.high - once.low) / 2, rel=0.15)


def test_the_clustered_interval_covers_the_truth() -> None:
    """95 % of 200 intervals, on objects that differ much more than their pictures do."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(60), generator.integers(1, 8, 60))
    covered = naive = 0
    for _ in range(200):
        delta = generator.normal(0.02, 0.2, 60)[labels] + generator.normal(0, 0.05, len(labels))
        nothing = np.zeros(len(labels))
        # One seed, whose draws are kept: what differs between the intervals is the data.
        found = paired_bootstrap(delta, nothing, groups=labels, resamples=400)
        alone = paired_bootstrap(delta, nothing, resamples=400)
        covered += found.low <= 0.02 <= found.high
        naive += alone.low <= 0.02 <= alone.high
    assert 0.88 <= covered / 200 <= 0.99
    assert naive / 200 < 0.8  # what drawing pictures singly would claim


def test_verdicts_by_hand() -> None:
    assert verdict(0.01, 0.03) == "held"
    assert verdict(-0.03, -0.01) == "did not hold"
    assert verdict(-0.01, 0.01) == "not told apart"
    assert verdict(0.01, 0.03, margin=0.02) == "not told apart"
    assert verdict(0.01, 0.03, margin=0.04) == "did not hold"
    assert verdict(-0.005, 0.03, margin=-0.01) == "held"  # no worse than one point


def test_the_mean_of_independent_contrasts() -> None:
    parts = [Contrast(0.1, 0.07, 0.14), Contrast(0.2, 0.16, 0.23)]
    mean = mean_contrast(parts)
    assert mean == pytest.approx((0.15, 0.15 - 0.05 / 2, 0.15 + 0.05 / 2))  # 3-4-5
    assert str(parts[0]) == "+10.0 [+7.0, +14.0]"


def test_the_best_of_many_is_judged_on_other_images() -> None:
    """Fifty coins, none better than the reference: on the choosing half the best looks better."""
    generator = np.random.default_rng(1)
    optimism, gains = [], []
    for seed in range(40):
        coins, reference = generator.random((50, 200)) < 0.5, generator.random(200) < 0.5
        found = choose_then_judge(coins, reference, seed=seed)
        chosen, judged = halves(200, seed)
        assert found.n == len(judged)
        seen = coins[:, chosen].mean(axis=1)
        assert seen[found.best] == seen.max()
        optimism.append(coins[found.best, chosen].mean() - reference[chosen].mean())
        gains.append(found.gain.value)
    assert np.mean(optimism) > 0.08
    assert abs(np.mean(gains)) < 3 * np.std(gains) / np.sqrt(40)


def test_a_group_stays_on_one_side() -> None:
    labels = np.repeat(np.arange(20), 5)
    table = np.random.default_rng(0).random((3, 100)) < 0.5
    found = choose_then_judge(table, table[0], groups=labels)
    assert found.n % 5 == 0


def two(n: int = 300) -> tuple[list[CellResult], list[CellResult]]:
    a = [clean_cell("new", data, flags(0.9, n, k)) for k, data in enumerate(("x", "y"))]
    b = [clean_cell("old", data, flags(0.6, n, k)) for k, data in enumerate(("x", "y"))]
    return a, b


def test_one_model_against_one() -> None:
    a, b = two()
    found = stockpot.compare(a, b)
    assert not found.left_out
    assert [(row.data, row.metric, row.verdict) for row in found.rows] == [
        ("x", "accuracy", "held"), ("y", "accuracy", "held"), ("mean of 2", "accuracy", "held"),
    ]  # fmt: skip
    mean = found.rows[2]
    assert mean.difference == pytest.approx(np.mean([r.difference for r in found.rows[:2]]))
    turned = stockpot.compare(b, a).rows[0]
    assert (turned.low, turned.high) == pytest.approx((-found.rows[0].high, -found.rows[0].low))
    assert turned.verdict == "did not hold"
    assert stockpot.compare(a, a, margin=-0.01).rows[0].verdict == "held"
    assert stockpot.compare(a, a).rows[0].verdict == "not told apart"


def test_copies_of_an_image_in_one_cell_count_once() -> None:
    n = 200
    right = {"a": flags(0.8, n, 1), "b": flags(0.7, n, 2)}
    cells = {}
    for name, mask in right.items():
        cell = clean_cell(name, "x", mask)
        key = cell.key.model_copy(update={"measure": "corruption"})
        copies = {f"fog:{k}": pack_bits(mask) for k in range(1, 6)}
        cells[name] = cell.model_copy(update={"key": key, "outcomes": copies})
    row = stockpot.compare(cells["a"], cells["b"]).rows[0]
    once = paired(right["a"], right["b"])
    assert row.metric == "corruption accuracy"
    assert (row.difference, row.low, row.high) == pytest.approx(once)
    assert row.n == n


def copied(name: str, times: int) -> CellResult:
    """A model on 80 images, each of which stands there several times in a row."""
    cell = clean_cell(
        name, "x", np.repeat(flags(0.8 if name == "a" else 0.6, 80, ord(name)), times)
    )
    labels = [f"image {row // times}" for row in range(80 * times)]
    return cell.model_copy(update={"groups": pack_groups(labels)})


def test_results_tell_which_images_belong_together(tmp_path: Path) -> None:
    """Nine copies of each image are no further evidence, wherever two models are compared."""
    one, nine = ([copied(name, times) for name in "ab"] for times in (1, 9))
    assert [cell.groups for cell in one] == ["", ""]  # each stands alone
    row, other = (stockpot.compare(*cells).rows[0] for cells in (one, nine))
    assert (other.low, other.high) == pytest.approx((row.low, row.high))
    assert (other.n, other.clusters) == (720, 80)
    # Labels that are given come first; one side may be from before results told.
    asked = {"x": np.arange(720) // 18}
    assert stockpot.compare(*nine, groups=asked).rows[0].clusters == 40
    older = nine[0].model_copy(update={"groups": ""})
    assert stockpot.compare(older, nine[1]).rows[0].clusters == 80
    for cell in nine:
        ResultStore(tmp_path / "results").save(cell)
    (shown,), (apart,) = (comparisons(cells) for cells in (load_results(tmp_path), one))
    assert (shown.found.low, shown.found.high) == pytest.approx(
        (apart.found.low, apart.found.high), abs=1e-9
    )
    mean, alone = (group_means(cells, ["x"])["a"] for cells in (nine, one))
    assert mean.value == pytest.approx(alone.value)
    assert (mean.interval.low, mean.interval.high) == pytest.approx(
        (alone.interval.low, alone.interval.high), abs=1e-6
    )
    fresh, _, changes = rescored(nine[0])
    assert changes  # `clean_cell` took every copy for an image
    once = fresh.score("accuracy")
    assert (once.ci_low, once.ci_high) == pytest.approx(wilson(round(once.value * 80), 80)[:2])


def test_labels_survive_in_few_bytes() -> None:
    labels = [f"n{row % 5000:05d}.JPEG" for row in range(75_000)]
    text = pack_groups(labels)
    assert len(text) < 2000
    numbers = unpack_groups(text)
    assert np.array_equal(numbers, np.arange(75_000) % 5000)
    assert pack_groups(labels[:5000]) == pack_groups(None) == ""


def test_groups_of_several_sizes_weigh_by_their_images() -> None:
    """The spread of means of `by_group` is that of means over whole drawn groups."""
    groups = np.repeat(np.arange(60), np.random.default_rng(3).integers(1, 6, 60))
    right = flags(0.6, len(groups), 4).astype(np.float32)
    numbers = by_group(right, groups)
    assert numbers.mean() == pytest.approx(right.mean(), rel=1e-5)
    low, high, _ = bootstrap_mean(right, groups=groups)
    other = bootstrap_mean(numbers)
    assert other.high - other.low == pytest.approx(high - low, rel=0.05)


def test_a_search_is_compared_where_both_were_accepted() -> None:
    n = 60
    cells = []
    for k, name in enumerate("ab"):
        cell = clean_cell(name, "x", flags(0.9, n, k))
        kept, right = np.arange(n) % (2 + k) == 0, np.arange(n) % 12 == 0
        outcomes = {"validated": pack_bits(kept), "withstood": pack_bits(right if k else kept)}
        key = cell.key.model_copy(update={"measure": "dynamic"})
        cells.append(cell.model_copy(update={"key": key, "outcomes": outcomes}))
    (row,) = stockpot.compare(*cells, groups={"x": np.arange(n) // 2}).rows
    assert (row.n, row.clusters) == (10, 10)  # multiples of 6
    assert (row.a, row.b) == (1.0, 0.5)


SETS = ("forest", "sea", "street")
"""The same objects on three backgrounds."""


def searched(name: str, data: str, right: np.ndarray, kept: np.ndarray) -> CellResult:
    cell = clean_cell(name, data, right)
    key = cell.key.model_copy(update={"measure": "dynamic"})
    facts = cell.data.model_copy(update={"fingerprint": data})
    outcomes = {"validated": pack_bits(kept), "withstood": pack_bits(right & kept)}
    return cell.model_copy(update={"key": key, "data": facts, "outcomes": outcomes})


def test_the_mean_over_sets_of_the_same_images_covers_the_truth() -> None:
    """Other images are judged in every set, so that sets differ in size, and share what they have:
    95 % of 150 intervals, and a true margin is missed in 5 % of all cases."""
    generator = np.random.default_rng(0)
    covered = refused = 0
    for _ in range(150):
        # Of each image of a large world both are right, one of them, or none: 0.25 - 0.15.
        drawn = generator.choice(4, 80, p=(0.4, 0.25, 0.15, 0.2))
        right = {"a": np.isin(drawn, (0, 1)), "b": np.isin(drawn, (0, 2))}
        kept = [generator.random(80) < 0.7 for _ in SETS]
        seen = list(zip(SETS, kept, strict=True))
        sides = ([searched(name, data, right[name], keep) for data, keep in seen] for name in "ab")
        row = stockpot.compare(*sides, margin=0.1, top=0).rows[-1]
        assert row.data == "mean of 3"
        assert row.clusters < 80
        covered += row.low <= 0.1 <= row.high
        refused += row.p_value <= 0.05
    assert 0.90 <= covered / 150 <= 0.99
    assert refused / 150 <= 0.09


def test_images_under_three_names_count_once() -> None:
    right = flags(0.8, 12)
    once, *more = (
        [clean_cell(name, data, right).model_copy(update={"groups": pack_groups(range(12))})
         for data in SETS[:count]]
        for count in (1, 3) for name in "ab"
    )  # fmt: skip
    single = stockpot.compare(once, more[0], margin=-0.1).rows[0]
    mean = stockpot.compare(*more[1:], margin=-0.1).rows[-1]
    assert (mean.data, mean.n, mean.clusters) == ("mean of 3", 36, 12)
    assert (mean.low, mean.high, mean.p_value) == pytest.approx(
        (single.low, single.high, single.p_value)
    )


def test_what_cannot_be_paired_is_said() -> None:
    a, b = two()
    other = clean_cell("old", "y", flags(0.6, 120))
    found = stockpot.compare(a, [b[0], other])
    assert found.left_out == ["new, clean on y: other images (300 and 120)"]
    with pytest.raises(UserError, match="no cell of both stands on the same images"):
        stockpot.compare(a[1], other)
    with pytest.raises(UserError, match="--model NAME --against NAME"):
        stockpot.compare([*a, clean_cell("newer", "x", flags(0.5, 300))], b)
    with pytest.raises(UserError, match=r"no model \(against\) named 'od'.*old"):
        stockpot.compare(a, b, against="od")
    with pytest.raises(BadParameterError, match="a label for each of its 300 images, got 2"):
        stockpot.compare(a, b, groups={"x": [1, 2]})


def test_the_command(tmp_path: Path) -> None:
    for cell in (*two()[0], *two()[1]):
        ResultStore(tmp_path / cell.key.model / "results").save(cell)
    both = (tmp_path / "new", tmp_path / "old")
    shown = invoke("compare", *both)
    assert shown.exit_code == 0
    assert "A is better than B" in shown.output
    assert "held" in shown.output
    labels = tmp_path / "labels.txt"
    labels.write_text("\n".join(str(k // 3) for k in range(300)))
    found = json.loads(invoke("compare", *both, "--groups", f"x={labels}", "--json").output)
    assert [row["clusters"] for row in found["rows"]] == [100, 300, 400]
    assert invoke("compare", tmp_path / "none", both[1]).exit_code == 1


def test_the_largest_of_many_differences_is_no_finding() -> None:
    """Eight differences that are none: one of their 95 % intervals lies above 0 in every fifth."""
    generator = np.random.default_rng(5)
    naive, together = 0, 0
    for _ in range(24):
        pairs = [Pair(*(generator.random((2, 60)) < 0.5).astype(float)) for _ in range(8)]
        naive += any(paired(pair.first, pair.second).low > 0 for pair in pairs)
        together += some_exceed(pairs).verdict == "held"
    assert naive >= 3
    assert together <= 2


def test_claims_about_several_differences() -> None:
    images = np.arange(400)
    good, bad, same = images % 10 < 8, images % 10 < 3, images % 10 < 5
    up, down, level = (Pair(side.astype(float), same.astype(float)) for side in (good, bad, same))
    assert some_exceed([up, down]).verdict == "held"
    assert some_exceed([down, down]).verdict == "did not hold"
    assert some_exceed([level, down]).verdict == "not told apart"
    assert every_exceed([up, up]).verdict == "held"
    assert every_exceed([up, down]).verdict == "did not hold"
    assert every_exceed([up, level]).verdict == "not told apart"
    assert every_exceed([up, level], -0.02).verdict == "held"
    assert every_exceed([]).verdict == some_exceed([]).verdict == "not told apart"


def test_a_contrast_of_runs_has_the_confidence_that_is_asked_for() -> None:
    """One run: images alone, of which the normal interval is known."""
    first, second = (
        flags(rate, 2000, seed).astype(np.float32) for seed, rate in enumerate((0.7, 0.6))
    )
    both = Contrasts({"a": {"0": {"x": first}}, "b": {"0": {"x": second}}})
    spread = float((first - second).std()) / np.sqrt(2000)
    for confidence in (0.95, 0.99):
        found = both.of({"a": 1, "b": -1}, ["x"], confidence)
        assert found is not None
        half = stats.norm.ppf(0.5 + confidence / 2) * spread
        assert found.high - found.low == pytest.approx(2 * half, rel=0.1)
        assert found.value == pytest.approx(float((first - second).mean()), abs=1e-6)


def test_the_best_of_several_references_is_chosen_too() -> None:
    rng = np.random.default_rng(2)
    references = rng.random((3, 400)) < np.array([0.2, 0.7, 0.4])[:, None]
    found = choose_then_judge(rng.random((5, 400)) < 0.1, references)
    assert found.other == 1
    assert found.gain.verdict == "did not hold"
    # Equal candidates: one of them is drawn, not the first.
    same = np.ones((6, 40))
    assert len({choose_then_judge(same, same[0], seed=seed).best for seed in range(20)}) > 2
