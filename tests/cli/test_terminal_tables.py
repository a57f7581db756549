"""Tables on a terminal: headings stay whole, columns that do not fit follow below."""

from __future__ import annotations

import numpy as np
import pytest

from hand_made import clean_cell
from stockpot.cli.console import table
from stockpot.cli.scores import print_scores
from stockpot.results.schema import Score


@pytest.mark.parametrize("room", [60, 80, 200])
def test_headings_and_numbers_stay_whole(room: int, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", str(room))
    heads = [
        "model",
        "validation rate",
        "mean corruption acc.",
        "matched FMR",
        "perturbed accuracy",
    ]
    cells = ["61.1 % [58.6, 63.5]"] * 4
    table(heads, [["icons-resnet", *cells], ["a-much-longer-name-of-a-model", *cells]], title="t")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= room
    words = " ".join(lines).split()
    for head in heads:
        assert set(head.split()) <= set(words)  # not `vali`, `dati`, `on`
    assert sum("61.1 % [58.6, 63.5]" in line for line in lines) >= 2
    assert " ".join(lines).count("61.1 % [58.6, 63.5]") == 8


def test_measures_and_questions_have_tables_of_their_own(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    right = np.arange(100) < 90
    cells = [clean_cell("good", "x", right), clean_cell("bad", "x", ~right)]
    key = cells[0].key.model_copy(update={"measure": "adversarial"})
    robust = Score(
        metric="robust_accuracy", value=0.2, n=100, condition={"norm": "linf", "eps": "8/255"}
    )
    attacked = cells[0].model_copy(update={"key": key, "scores": [*cells[0].scores, robust]})
    print_scores([*cells, attacked])
    shown = capsys.readouterr().out
    assert "best beyond noise" in shown
    assert [line.split()[0] for line in shown.splitlines() if "% *" in line] == ["good"]
    first, second = shown.split("adversarial")
    assert "robust" not in first
    assert "clean" in second.split("good")[0]  # and no second column called accuracy
