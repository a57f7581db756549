"""Result files: atomic, resumable, readable by others."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest
import yaml

from stockpot.errors import UserError
from stockpot.files import write_atomic
from stockpot.results.exports import FORMATS, export
from stockpot.results.packed import pack_bits, unpack_bits
from stockpot.results.schema import (
    CellKey,
    CellResult,
    Cost,
    DataFacts,
    ModelFacts,
    Provenance,
    Score,
)
from stockpot.results.store import ResultStore, load_results


def make_result(model: str = "a", measure: str = "clean", **key: object) -> CellResult:
    score = Score(
        metric="accuracy", value=0.75, n=8, ci_low=0.4, ci_high=0.9, ci_method="wilson-95"
    )
    corruption = Score(metric="mean_corruption_accuracy", value=0.5, n=8)
    return CellResult(
        key=CellKey(model=model, measure=measure, data="toy", **key),
        scores=[score, corruption],
        data=DataFacts(name="toy", split="test", n=8, classes=4, fingerprint="f" * 64),
        model=ModelFacts(name=model, source=model, fingerprint="e" * 64, architecture="Net"),
        convention="top1:all",
        provenance=Provenance(stockpot="0", created="2026-01-01T00:00:00+00:00"),
        cost=Cost(wall_seconds=1.0, device="cpu"),
        outcomes={"correct": pack_bits(np.array([1, 1, 1, 0, 1, 1, 0, 1], dtype=bool))},
    )


def test_bits_come_back() -> None:
    flags = np.random.default_rng(0).random(1003) < 0.5
    assert (unpack_bits(pack_bits(flags), 1003) == flags).all()


def test_a_cell_is_found_by_its_question_only(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    result = make_result()
    store.save(result)
    assert store.find(result.key) == result
    assert store.find(make_result(seed=1).key) is None
    assert store.find(make_result(params={"top": 3}).key) is None
    assert store.find(make_result(data_fingerprint="other").key) is None
    assert list(store) == [result]


def test_long_names_have_files_too(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    made = make_result()
    long = [
        made.model_copy(update={"key": made.key.model_copy(update={"model": "x" * count})})
        for count in (300, 301)
    ]
    for result in long:
        assert store.find(result.key) is None
        store.save(result, b"records")
    assert [store.find(result.key) for result in long] == long


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "x.json"
    write_atomic(path, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="No space left"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x.json"]


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"schema_version": 1}')
    with pytest.raises(UserError, match=r"bad\.json is not a result file"):
        load_results(tmp_path)


def test_no_results_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no result files"):
        load_results(tmp_path)


def test_csv_has_one_row_per_score(tmp_path: Path) -> None:
    (path,) = export([make_result("a"), make_result("b")], "csv", tmp_path / "r.csv")
    rows = list(csv.DictReader(path.open()))
    assert [row["model"] for row in rows] == ["a", "a", "b", "b"]
    assert float(rows[0]["value"]) == 0.75
    assert rows[0]["n"] == "8"


def test_lm_eval_layout(tmp_path: Path) -> None:
    (path,) = export([make_result()], "lm-eval", tmp_path)
    document = json.loads(path.read_text())
    task = document["results"]["clean:toy"]
    assert task["accuracy,none"] == 0.75
    assert task["accuracy_stderr,none"] == pytest.approx(0.5 / 3.92, rel=1e-3)
    assert document["higher_is_better"]["clean:toy"]["accuracy"] is True
    assert document["n-samples"]["clean:toy"]["effective"] == 8


def test_hub_eval_results_are_read_by_the_hub_client(tmp_path: Path) -> None:
    from huggingface_hub import parse_eval_result_entries

    (path,) = export([make_result()], "eval-results", tmp_path)
    assert path.relative_to(tmp_path).as_posix() == "a/.eval_results/toy.yaml"
    entries = parse_eval_result_entries(yaml.safe_load(path.read_text()))
    assert entries[0].value == 0.75
    assert "n=8" in entries[0].notes


def test_unknown_format_is_suggested(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Did you mean csv"):
        export([make_result()], "cvs", tmp_path)
    assert set(FORMATS) > {"csv", "parquet", "latex", "markdown", "model-card"}
