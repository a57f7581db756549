"""Tables as text, and pages that they fill."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from hand_made import clean_cell
from stockpot.errors import UserError
from stockpot.results.headline import images_of
from stockpot.results.schema import Score
from stockpot.results.tables import csv_text, fill, filled, markdown, percents, read_csv, score_row

PAGE = "before\n<!-- one -->\nold\nrows\n<!-- end -->\nbetween\n<!-- two -->\n<!-- end -->\nafter\n"


def test_only_marked_places_change(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(PAGE)
    fill(page, {"one": "a \\1", "two": "b"})
    expected = PAGE.replace("old\nrows", "a \\1").replace("two -->\n", "two -->\nb\n")
    assert page.read_text() == expected
    fill(page, {"one": "a \\1", "two": "b"})
    assert page.read_text() == expected
    with pytest.raises(UserError, match="no place for 'three'"):
        fill(page, {"three": ""})


def test_places_in_a_sentence_are_filled_wherever_they_stand(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("It gains <!-- gain -->1<!-- end --> and <!-- gain --><!-- end --> points.\n")
    fill(page, {"gain": "2.5"})
    text = page.read_text()
    assert (
        text == "It gains <!-- gain -->2.5<!-- end --> and <!-- gain -->2.5<!-- end --> points.\n"
    )


def test_a_sentence_says_what_a_table_of_its_page_says() -> None:
    table = markdown(
        ("claim", "data", "points [95 %]", "verdict"),
        [("F1 `a` wins", "icons", "+1.0 [+0.5, +1.5]", "held"),
         ("F10 all win", "icons", "`a` +2.0; ResNet-50 -3.0 [-4.0, -2.0]", "**held**"),
         ("F10 all win", "mnist", "-", "not told apart"), ("F10", "mnist", "0.0", "-")],
    )  # fmt: skip
    named = {
        "one | F1 | points": "+1.0 [+0.5, +1.5]", "one | F10 & icons | verdict": "**held**",
        "one | F10 & icons | points | a": "+2.0", "one | F10 | points": "0.0",
        "one | F10 & icons | points | ResNet-50": "-3.0 [-4.0, -2.0]",
    }  # fmt: skip
    page = "<!-- one -->\n<!-- end -->\n" + "".join(f"<!-- {n} -->0<!-- end -->\n" for n in named)
    text = filled(page, {"one": table})
    for name, cell in named.items():
        assert f"<!-- {name} -->{cell}<!-- end -->" in text
    assert filled(text, {"one": table}) == text
    for name in (
        "one | F10 all win | points",
        "one | F2 | points",
        "two | F1 | points",
        "one | F1 | p",
    ):
        with pytest.raises(UserError, match="asks for one cell"):
            filled(f"{page}<!-- {name} --><!-- end -->", {"one": table})


def test_tables_as_text() -> None:
    assert markdown(["a", "b"], [[1, "x"]]) == "| a | b |\n|---|---|\n| 1 | x |"
    rows = list(csv.DictReader(io.StringIO(csv_text([{"a": 1, "b": "x,y"}, {"a": 2, "c": 3}]))))
    assert rows == [{"a": "1", "b": "x,y", "c": ""}, {"a": "2", "b": "", "c": "3"}]


def test_scores_in_percent() -> None:
    score = Score(metric="accuracy", value=0.5, n=10, ci_low=0.4, ci_high=0.6)
    assert percents(score) == "50.0 [40.0, 60.0]"
    assert percents(score, interval=False) == "50.0"
    assert percents(None) == "-"


def test_rows_come_back_from_a_file(tmp_path: Path) -> None:
    rows = [{"model": "a", "value": 0.25, "n": 4.0}, {"model": "1e", "value": None, "n": -1.0}]
    (tmp_path / "rows.csv").write_text(csv_text(rows), encoding="utf-8")
    assert read_csv(tmp_path / "rows.csv") == rows


def test_scores_as_columns_leave_parts_of_the_images_out() -> None:
    cell = clean_cell("a", "x", np.array([True, False]))
    cell.scores.insert(0, Score(metric="accuracy", value=1.0, n=1, condition={"class": "cat"}))
    found = score_row(cell, ["accuracy", "fmr"])
    assert found == {"accuracy": 0.5, "accuracy_low": None, "accuracy_high": None}


def test_a_measure_on_a_part_of_the_data_does_not_seem_to_stand_on_all() -> None:
    whole = clean_cell("a", "x", np.array([True, False, True]))
    assert images_of([whole]).startswith("3 images of x")
    assert ";" not in images_of([whole])
    part = whole.model_copy(
        update={
            "key": whole.key.model_copy(update={"measure": "audit"}),
            "scores": [Score(metric="accuracy", value=0.5, n=2)],
        }
    )
    assert images_of([whole, part]).endswith("; audit on 2")
