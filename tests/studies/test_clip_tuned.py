"""The margin that tuning is worth in the CLIP study."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest


def test_the_margin_is_the_mean_over_tasks_of_paired_differences(
    part: Callable[[str, str], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tuned = part("clip_fusion", "tuned")
    tasks = list(tuned.EXPERT_OF)
    right = {"a": np.ones(40, bool), "b": np.arange(40) < 30}

    def cell(key: str, name: str, task: str) -> Any:
        return SimpleNamespace(
            key=SimpleNamespace(model=f"{key}-{name}-0", data=task), outcome=lambda _: right[name]
        )

    cells = [cell(*who, task) for who in (("tuned", "a"), ("default", "b")) for task in tasks]
    found = {
        "tuned": SimpleNamespace(method="a", number=0),
        "default": SimpleNamespace(method="b", number=0),
    }
    monkeypatch.setattr(tuned, "leaders", lambda runs: found)
    monkeypatch.setattr(tuned, "load_results", lambda out: cells)
    (tmp_path / f"{tuned.TUNED}_best" / "results").mkdir(parents=True)
    (row,) = tuned.leader_rows(tmp_path)
    assert (row["first"], row["second"], row["margin"]) == (1.0, 0.75, 0.25)
    assert row["images"] == 40 * len(tasks)
    assert 0 < row["margin_low"] < 0.25 < row["margin_high"] < 0.5
