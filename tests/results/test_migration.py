"""Older result files open; newer ones say that they are newer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stockpot.errors import UserError
from stockpot.results.migration import STEPS, VERSION, migrated
from stockpot.results.schema import CellResult
from stockpot.results.store import ResultStore, load_results, read_result

OLD = Path(__file__).parent / "version_1"
FILES = sorted(OLD.glob("*.json"))


def test_there_is_a_step_from_every_older_version() -> None:
    assert sorted(STEPS) == list(range(1, VERSION))
    assert CellResult.model_fields["schema_version"].default == VERSION


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.split("--")[1])
def test_a_file_of_version_1_opens_with_all_it_says(path: Path) -> None:
    before = json.loads(path.read_bytes())
    assert before["schema_version"] == 1
    result = read_result(path)
    assert result.schema_version == VERSION
    assert result.key.entry == ""
    after = json.loads(result.model_dump_json())
    grown = ("key", "model", "cost", "provenance")  # to which facts were added since
    for name in before.keys() - {"schema_version", *grown}:
        assert after[name] == before[name]
    for name in grown:
        assert before[name].items() <= after[name].items()
    assert int(result.outcome("correct").sum()) == round(result.score("accuracy").value * 12)


def test_a_rerun_finds_cells_of_version_1() -> None:
    for path in FILES:
        key = read_result(path).key
        assert ResultStore(OLD).path(key) == path
        assert ResultStore(OLD).find(key) is not None
    assert len(load_results(OLD)) == len(FILES) == 2


def test_sizes_of_other_sets_are_read_off_their_scores() -> None:
    score = {"metric": "outside_accuracy", "n": 20, "value": 0.5, "condition": {"set": "far"}}
    same = {"metric": "outside_accuracy", "n": 12, "value": 0.5, "condition": {"set": "near"}}
    document = {
        "schema_version": 1,
        "data": {"n": 12},
        "scores": [score, same],
        "outcomes": {"correct": "", "outside:far": "", "outside:near": ""},
    }
    assert migrated(document)["outcome_sizes"] == {"outside:far": 20}
    assert "outcome_sizes" not in document


def test_a_newer_file_and_no_file_at_all_are_told_in_one_line(tmp_path: Path) -> None:
    document = json.loads(FILES[0].read_bytes())
    path = tmp_path / "new.json"
    path.write_text(json.dumps({**document, "schema_version": VERSION + 1}))
    with pytest.raises(UserError, match="newer Stockpot"):
        read_result(path)
    path.write_text("{")
    with pytest.raises(UserError, match="no JSON"):
        read_result(path)
    path.write_text("[]")
    with pytest.raises(UserError, match="not a result file"):
        read_result(path)
