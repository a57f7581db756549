"""What a page says first: best beyond noise, who shares a table, notes, cautions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hand_made import clean_cell
from stockpot.results.headline import headline_columns, headline_rows
from stockpot.results.packed import pack_bits
from stockpot.results.schema import CellResult, Flag, Score
from stockpot.results.summary.best import Entrant, best_beyond_noise, entrant
from stockpot.results.summary.cautions import cautions
from stockpot.results.summary.comparable import comparable
from stockpot.results.summary.models import summary
from stockpot.results.summary.notes import gathered_notes
from stockpot.results.trust import UNAUDITED


def share(value: float, half: float, n: int = 100, *, higher: bool = True) -> Entrant:
    low, high = value - half, value + half
    return Entrant(Score(metric="m", value=value, n=n, ci_low=low, ci_high=high,
                         higher_is_better=higher))  # fmt: skip


def answers(rate: float, n: int = 200, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(n) < rate


def best_of_cells(*cells: CellResult) -> str | None:
    return best_beyond_noise({c.key.model: entrant(c, c.score("accuracy")) for c in cells})


def test_intervals_decide_where_there_are_no_answers() -> None:
    # 5 points apart with half-widths of 3 and 4: just within hypot(3, 4) = 5, and just beyond.
    close = {"a": share(0.6, 0.03), "b": share(0.55, 0.04)}
    assert best_beyond_noise(close) is None
    assert best_beyond_noise(close | {"b": share(0.5499, 0.04)}) == "a"
    lower = {"a": share(0.6, 0.03, higher=False), "b": share(0.5499, 0.04, higher=False)}
    assert best_beyond_noise(lower) == "b"
    # A third that is as good as the best spoils it; equal and lonely ones have no best.
    assert best_beyond_noise(close | {"b": share(0.4, 0.04), "c": share(0.59, 0.03)}) is None
    assert best_beyond_noise({"a": share(0.0, 0.0), "b": share(0.0, 0.0)}) is None
    assert best_beyond_noise({"a": share(0.6, 0.03)}) is None


def test_answers_to_the_same_images_are_paired() -> None:
    """Where two mostly agree, far less tells them apart; McNemar's exact test says the same."""
    base = answers(0.6)
    for gained, expected in ((5, None), (14, "a")):
        better = base.copy()
        better[np.flatnonzero(~base)[:gained]] = True
        exact = stats.binomtest(gained, gained).pvalue
        assert bool(exact < 0.05) is (expected == "a")
        cells = clean_cell("a", "x", better), clean_cell("b", "x", base)
        assert best_of_cells(*cells) == expected
        # Their intervals alone overlap by far.
        alone = {c.key.model: Entrant(c.score("accuracy")) for c in cells}
        assert best_beyond_noise(alone) is None


def test_equal_models_are_rarely_told_apart() -> None:
    """At 95 %, one pair of equals in twenty at most, within the error of the count."""
    wrong = 0
    for seed in range(250):
        pair = (answers(0.5, 150, 2 * seed), answers(0.5, 150, 2 * seed + 1))
        cells = [clean_cell(name, "x", one) for name, one in zip("ab", pair, strict=True)]
        wrong += best_of_cells(*cells) is not None
    assert wrong <= stats.binom.ppf(0.999, 250, 0.05)


def test_a_table_marks_nothing_where_all_are_equal() -> None:
    cells = [clean_cell(name, "x", np.zeros(50, dtype=bool)) for name in ("a", "b", "c")]
    rows = headline_rows(cells, headline_columns(cells))
    assert not any(shown.best for row in rows.values() for shown in row)


def changed(cell: CellResult, **params: object) -> CellResult:
    return cell.model_copy(update={"key": cell.key.model_copy(update={"params": params})})


def test_what_cannot_be_compared_shares_no_table() -> None:
    one, two = (clean_cell(name, "x", answers(0.5)) for name in ("a", "b"))
    assert [len(group.cells) for group in comparable([one, two])] == [2]
    stronger = comparable([changed(one, steps=10), changed(two, steps=50)])
    assert [group.apart for group in stronger] == ["steps 10", "steps 50"]
    fewer = clean_cell("b", "x", answers(0.5, 50))
    assert [group.apart for group in comparable([one, fewer])] == ["200 images", "50 images"]


def noted(name: str, *notes: str) -> CellResult:
    return clean_cell(name, "x", answers(0.5)).model_copy(update={"notes": list(notes)})


def test_notes_that_differ_in_a_number_are_one_line() -> None:
    cells = [noted("a", "spared 21 of 1,000 passes"), noted("b", "spared 3.5 of 1,000 passes"),
             noted("c", "under linf 8/255"), noted("d", "under linf 4/255")]  # fmt: skip
    assert gathered_notes(cells) == [
        "a, b: spared 3.5 to 21 of 1,000 passes",
        "c: under linf 8/255",  # another radius is another question
        "d: under linf 4/255",
    ]


def test_the_summary_says_what_is_missing_and_what_to_mind() -> None:
    cells = [noted("a", UNAUDITED), clean_cell("b", "x", answers(0.5, seed=3))]
    cells[1] = cells[1].model_copy(
        update={"flags": [Flag(name="non_finite", count=3, of=50)], "seen": pack_bits(answers(0.1))}
    )
    few = clean_cell("c", "y", answers(0.5, 20))
    found = summary([*cells, few])
    assert "corruptions" in found.missing
    assert "clean" not in found.missing
    said = cautions([*cells, few], found)
    for words in ("Flagged as non finite: b", "saw when it was made: b (", "Not audited: a"):
        assert sum(words in sentence for sentence in said) == 1, words
    # Two datasets that no model shares are two columns, never one.
    assert [set(column.scores) for column in found.columns] == [{"a", "b"}, {"c"}]
    assert any("clean (y) on 20" in sentence for sentence in said)


@pytest.mark.parametrize("worst", ["noise", "night"])
def test_the_worst_of_several_shifts_is_named(worst: str) -> None:
    sets = {"noise": 0.4, "night": 0.5} | {worst: 0.2}
    scores = [Score(metric="outside_accuracy", value=value, n=100, ci_low=value - 0.1,
                    ci_high=value + 0.1, condition={"set": name})
              for name, value in sets.items()]  # fmt: skip
    cell = clean_cell("a", "x", answers(0.5))
    key = cell.key.model_copy(update={"measure": "shift"})
    found = summary([cell.model_copy(update={"key": key, "scores": scores})])
    (column,) = found.columns
    assert (column.title, column.scores["a"].value, column.said) == (
        "worst shift",
        0.2,
        {"a": worst},
    )
