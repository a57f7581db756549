"""The CLIP fusions at published settings: from results to CSV rows to tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from hand_made import clean_cell
from stockpot.results.schema import CellResult, Score
from stockpot.results.tables import csv_text, read_csv

Part = Callable[[str, str], ModuleType]


def cell(model: str, task: str, right: int) -> CellResult:
    share = right / 100
    scores = [
        Score(metric="accuracy", value=share, n=100, ci_low=share - 0.1, ci_high=share + 0.1),
        Score(metric="ece", value=0.125, n=100), Score(metric="nll", value=1.5, n=100),
    ]  # fmt: skip
    found = clean_cell(model, task, np.arange(100) < right)
    return found.model_copy(update={"scores": scores})


def test_what_a_run_says_reaches_the_tables_through_csv_files(
    part: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    untuned = part("clip_fusion", "untuned")
    rights = {"clip-base": 50, "average": 60, "task_arithmetic-scale=0.3": 60,
              "task_arithmetic-scale=0.5": 40, "ties": 55}  # fmt: skip
    rights |= dict.fromkeys(untuned.EXPERT_OF.values(), 70)
    cells = [cell(m, task, n) for m, n in rights.items() for task in untuned.EXPERT_OF]
    monkeypatch.setattr(untuned, "load_results", lambda folder: cells)
    fused = untuned.Fused(tmp_path)

    def kept(rows: list[dict[str, object]]) -> list[dict[str, object]]:
        (tmp_path / "rows.csv").write_text(csv_text(rows), encoding="utf-8")
        return read_csv(tmp_path / "rows.csv")

    gains = kept(fused.gains())
    of = {(row["first"], row["second"]): row["gain"] for row in gains}
    assert of["clip-base", "average"] == pytest.approx(0.1)
    assert of["clip-base", "experts"] == pytest.approx(0.2)
    assert of["task_arithmetic-scale=0.3", "ties"] == pytest.approx(-0.05)
    order = untuned.order(gains).splitlines()[2:]
    assert [line.split(" | ")[-1] for line in order] == [
        "holds |", "not told apart |", "the other way round |",
    ]  # fmt: skip
    table = untuned.fusion(kept(untuned.score_rows(fused.table.tasks, fused.rows)), gains)
    assert "| task_arithmetic (scale 0.3) | 60.0 |" in table
    assert "scale=0.5" not in table
    assert "| each expert on its own task | 70.0 |" in table
    assert "60.0 / 12.5 / 1.50" in untuned.entropy(kept(fused.calibration()))


def test_corruptions_are_shown_with_their_means(part: Part, tmp_path: Path) -> None:
    untuned = part("clip_fusion", "untuned")
    cells = []
    for task in ("a", "b"):
        clean = cell("m", task, 80)
        key = clean.key.model_copy(update={"measure": "corruption"})
        scores = [
            Score(metric="accuracy", value=0.8, n=100, ci_low=0.7, ci_high=0.9),
            Score(metric="mean_corruption_accuracy", value=0.5, n=100, ci_low=0.4, ci_high=0.6),
            *(Score(metric="error", value=error, n=100, ci_low=error, ci_high=error,
                    condition={"corruption": "fog", "severity": severity})
              for severity, error in ((1, 0.4), (5, 0.6))),
        ]  # fmt: skip
        cells.append(clean.model_copy(update={"key": key, "scores": scores}))
    conditions, totals = untuned.corruption_rows(cells)
    assert [row["accuracy"] for row in conditions] == pytest.approx([0.6, 0.4])
    table = untuned.robustness(conditions, totals)
    assert table.splitlines()[0] == "| method | clean | fog | mean without spatter [95 %] |"
    assert "| m | 80.0 [" in table
    assert "] | 50.0 | 50.0 [" in table
