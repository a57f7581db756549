"""No result is lost where several share a name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hand_made import clean_cell
from stockpot.report.page import render
from stockpot.results.exports.write import export
from stockpot.results.named_apart import answers_apart
from stockpot.results.schema import CellResult, Finding
from stockpot.results.summary.models import summary
from stockpot.results.trust import UNAUDITED, audited_notes


def asked(right: int, **key: object) -> CellResult:
    made = clean_cell("m", "x", np.arange(100) < right)
    return made.model_copy(update={"key": made.key.model_copy(update=key)})


SEVERAL = {
    "weights": [asked(60, model_fingerprint="1" * 64), asked(80, model_fingerprint="2" * 64)],
    "options": [asked(60), asked(80, model_options={"defend": "clahe"})],
    "seeds": [asked(60, seed=3), asked(80, seed=0)],
    "precisions": [asked(60, precision="bf16"), asked(80)],
}


@pytest.mark.parametrize("what", SEVERAL)
def test_every_result_has_its_row(what: str, tmp_path: Path) -> None:
    cells = SEVERAL[what]
    told = summary(answers_apart(cells))
    assert [told.columns[0].scores[model].value for model in told.models] == [0.8, 0.6]
    (file,) = export(cells, "latex", tmp_path / "t.tex")
    page, table = render(cells, title="t"), file.read_text()
    for value in ("60.0", "80.0"):
        assert page.count(f"{value} %") >= 2  # in the summary, and among the scores
        assert f"{value} \\%" in table
    assert "2 models" in page


def test_names_that_say_enough_stay() -> None:
    usual, other = answers_apart(SEVERAL["seeds"])[::-1]
    assert (usual.key.model, other.key.model) == ("m", "m (seed 3)")
    alone = [asked(60, seed=3), clean_cell("n", "x", np.ones(9, bool))]
    assert answers_apart(alone) == alone


def test_another_seed_is_audited_too() -> None:
    attacked = [
        asked(60, measure="adversarial", seed=seed).model_copy(update={"notes": [UNAUDITED]})
        for seed in (0, 3)
    ]
    told = Finding(name="alive", verdict="cleared", count=0, of=9, low=0.0, rule="r", words="w")
    audit = asked(60, measure="audit").model_copy(update={"findings": [told]})
    cells = answers_apart([*attacked, audit])
    assert [cell.key.model for cell in cells] == ["m", "m (seed 3)", "m"]
    assert all(audited_notes(cell, cells) == ["audited: cleared"] for cell in cells[:2])
