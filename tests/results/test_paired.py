"""Many differences at once: Holm's correction, exact tests, and what changed where."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import stockpot
from commands import invoke
from hand_made import clean_cell
from stockpot.errors import UserError
from stockpot.results.contrast import level_with_best
from stockpot.results.packed import pack_bits, pack_labels
from stockpot.results.paired.pairing import otherwise
from stockpot.results.paired.significance import holm, sign_test
from stockpot.results.paired.words import as_markdown, told_apart, word
from stockpot.results.schema import CellResult
from stockpot.results.store import ResultStore


def corruption_cell(model: str, right: dict[str, np.ndarray], **update: object) -> CellResult:
    """Answers under some corruptions, with the class of each image."""
    n = len(next(iter(right.values())))
    made = clean_cell(model, "x", np.ones(n, bool))
    packed, names = pack_labels(np.arange(n) % 5, [f"class {k}" for k in range(5)])
    key = made.key.model_copy(update={"measure": "corruption"})
    outcomes = {name: pack_bits(flags) for name, flags in right.items()}
    return made.model_copy(update={"key": key, "outcomes": outcomes, "labels": packed,
                                   "label_names": names, **update})  # fmt: skip


def test_holms_correction_is_the_textbooks() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.5]) == [1.0, 1.0]
    assert holm([]) == []


def test_single_images_have_the_exact_test_of_mcnemars_table() -> None:
    delta = np.repeat([1, -1, 0], [9, 2, 89])
    assert sign_test(delta) == pytest.approx(stats.binomtest(2, 11).pvalue)
    assert sign_test(np.zeros(5)) == 1
    assert sign_test([0.5, 0]) is None
    a, b = np.arange(100) < 60, np.arange(100) < 51
    a[:2] = False
    row = stockpot.compare(clean_cell("a", "x", a), clean_cell("b", "x", b)).rows[0]
    assert row.p_value == row.p_adjusted == pytest.approx(stats.binomtest(2, 11).pvalue)


def test_verdicts_hold_for_all_rows_together() -> None:
    """Ten models that differ by chance alone from their old selves: without a correction two of
    five tables would hold a finding."""
    generator = np.random.default_rng(0)
    alone = together = 0
    for _ in range(30):
        sides = [[clean_cell(f"m{k}", "x", generator.random(80) < 0.5) for k in range(10)]
                 for _ in range(2)]  # fmt: skip
        rows = stockpot.compare(*sides, top=0).rows
        alone += any(row.p_value <= 0.05 for row in rows)
        together += any(row.verdict != "not told apart" for row in rows)
    assert alone >= 6
    assert together <= 4


def test_what_changed_is_found_by_class_and_by_condition() -> None:
    n = 600
    rng = np.random.default_rng(0)
    base = {name: rng.random(n) < 0.8 for name in ("fog:1", "fog:3", "snow:1", "snow:3")}
    worse = {name: flags.copy() for name, flags in base.items()}
    worse["snow:3"] &= rng.random(n) < 0.6
    third = np.arange(n) % 5 == 3
    for flags in worse.values():
        flags &= ~third | (rng.random(n) < 0.4)
    found = stockpot.compare(corruption_cell("new", worse), corruption_cell("old", base))
    by_class, by_condition = found.changes
    assert (by_class.by, by_class.of, by_class.changes[0].name) == ("class", 5, "class 3")
    first = by_class.changes[0]
    assert first.p_adjusted < 0.001
    assert first.difference == pytest.approx(
        np.mean([worse[k][third].mean() - base[k][third].mean() for k in base])
    )
    # Images that speak for the change: of the class, and the old model is righter about them.
    shares = [np.mean([side[k] for k in base], axis=0) for side in (worse, base)]
    assert all(row % 5 == 3 and shares[1][row] > shares[0][row] for row in first.rows)
    change = by_condition.changes[0]
    assert (change.name, change.severity) == ("snow", 3)
    assert word(found.rows[0]) == "worse"
    assert "class 3" in as_markdown(found)


def test_one_difference_has_one_verdict() -> None:
    """A norm is a row and a condition: what is not told among all rows is not told among norms."""
    right = {"correct": np.arange(100) < 60, "robust:linf:8/255": np.arange(100) < 40,
             "robust:l1:12": np.arange(100) < 20}  # fmt: skip
    less = {name: flags.copy() for name, flags in right.items()}
    less["robust:linf:8/255"][10:] = False
    less["robust:l1:12"][:8] = False
    less["robust:l1:12"][90] = True
    sides = [
        cell.model_copy(update={"key": cell.key.model_copy(update={"measure": "adversarial"})})
        for cell in (corruption_cell("a", right), corruption_cell("b", less))
    ]
    found = stockpot.compare(*sides)
    rows = {row.metric.replace(":", " "): row for row in found.rows}
    (norms,) = [part for part in found.changes if part.by == "condition"]
    assert {change.name for change in norms.changes} < rows.keys()
    for change in norms.changes:
        assert change.p_value == rows[change.name].p_value
        assert change.p_adjusted == rows[change.name].p_adjusted
        told = rows[change.name].verdict != "not told apart"
        assert told_apart(change, found.confidence) == told
    lesser = rows["robust l1 12"]
    assert lesser.p_value < 0.05 < lesser.p_adjusted  # so the two corrections would differ
    # A margin asks another question of the rows; what changed is still about no difference.
    wide = stockpot.compare(*sides, margin=0.2)
    assert wide.changes[-1].changes[0].p_adjusted < 0.05


def test_what_is_not_alike_is_left_out_and_said() -> None:
    right = {"fog:1": np.ones(50, bool), "snow:1": np.ones(50, bool)}
    a = [clean_cell("a", "x", right["fog:1"]), corruption_cell("a", right, convention="mce:x; 1")]
    other = corruption_cell("b", right, convention="mce:y; 1")
    found = stockpot.compare(a, [clean_cell("b", "x", right["fog:1"]), other,
                                 clean_cell("b", "y", right["fog:1"])])  # fmt: skip
    assert [row.measure for row in found.rows] == ["clean"]
    assert found.left_out == [
        "a, corruption on x: other convention (mce:x and mce:y)",
        "b, clean on y: not measured by the first",
    ]
    # What follows the rule's name may differ: it can tell of the model.
    alike = corruption_cell("b", right, convention="mce:x; 2")
    assert len(stockpot.compare(a[1], alike).rows) == 1


def test_like_is_compared_with_like_and_backwards_it_is_the_opposite() -> None:
    def asked(share: float, **key: object) -> CellResult:
        made = clean_cell("a", "x", np.arange(100) < 100 * share)
        return made.model_copy(update={"key": made.key.model_copy(update=key)})

    several = [asked(0.6, seed=3), asked(0.8, seed=0), asked(0.7, seed=0, precision="bf16")]
    (itself,) = stockpot.compare(several, several[::-1]).rows
    assert (itself.a, itself.difference) == (0.8, 0)
    (row,) = stockpot.compare(several, [asked(0.9, seed=3)]).rows
    (back,) = stockpot.compare([asked(0.9, seed=3)], several).rows
    assert row.difference == pytest.approx(-0.3) == -back.difference
    # A model that was changed in its place has two results: nobody knows which one is meant.
    changed = [asked(0.6, model_fingerprint="1" * 64), asked(0.8, model_fingerprint="2" * 64)]
    for sides in ((changed, several[:1]), (several[:1], changed), (changed, changed)):
        with pytest.raises(UserError, match="2 models of that name are there"):
            stockpot.compare(*sides)


def test_settings_are_alike_however_they_are_written() -> None:
    listed = {"severities": [1, 2, 3], "norms": ["linf", "l2"], "eps": ["8/255", 0.5], "x": None}
    written = {"severities": "1-3", "norms": "linf, l2", "eps": "8/255,0.5"}
    assert otherwise(listed, written) == []
    assert otherwise(listed, {**listed, "severities": "1-4"}) == ["severities"]
    assert otherwise({"data": "imagenet-1-2"}, {"data": "imagenet-1,2"}) == ["data"]
    assert otherwise({"top": 5}, {"top": True}) == ["top"]


def test_two_models_of_one_folder(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "run" / "results")
    for name, right in (("good", 380), ("bad", 300)):
        store.save(clean_cell(name, "x", np.arange(400) < right))
    run = tmp_path / "run"
    shown = invoke("compare", f"{run}:good", f"{run}:bad", "--markdown", tmp_path / "c.md")
    assert shown.exit_code == 0
    assert "better" in shown.output
    assert "**better**" in (tmp_path / "c.md").read_text()
    assert "no model (model) named 'god'" in invoke("compare", f"{run}:god", f"{run}:bad").output
    told = invoke("compare", f"{run}:good", f"{run}:bad", "--pictures", "x")
    assert "give -o FILE.html too" in told.output


def test_what_is_level_with_the_best_costs_nothing_that_can_be_seen() -> None:
    pictures = np.arange(100)
    flags = {
        0.3: pictures < 70,
        1.0: (pictures < 68) | (pictures == 99),  # 1 point behind, with a standard error of 1.7
        6.0: pictures < 60,  # 10 points behind, with one of 3
    }
    assert level_with_best(flags) == [0.3, 1.0]
    assert level_with_best(flags | {6.0: pictures < 73}) == [6.0]
