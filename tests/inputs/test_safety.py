"""Hostile names are shown and not obeyed, and files reach nothing beside themselves."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from stockpot.checkpoints.locate import indexed_files
from stockpot.cli.console import table
from stockpot.errors import LONGEST, UserError, printable
from stockpot.files import csv_cell, csv_name
from stockpot.measure.unlabelled.labels_file import Line, read_lines, write_lines
from stockpot.results.tables import csv_text, read_csv

FORMULAS = ("=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1")


@pytest.mark.parametrize("name", FORMULAS)
def test_a_name_in_a_csv_file_is_no_formula(name: str, tmp_path: Path) -> None:
    text = csv_text([{"model": name, "accuracy": -0.5}])
    (row,) = list(csv.DictReader(io.StringIO(text, newline="")))
    assert row["model"][0] not in "=+-@\t\r"
    assert row["accuracy"] == "-0.5"
    assert csv_cell("-0.5") == "-0.5"
    assert csv_cell("a\r=1") == "a =1"
    (tmp_path / "t.csv").write_text(text, newline="")
    assert read_csv(tmp_path / "t.csv") == [{"model": name, "accuracy": -0.5}]
    assert csv_name("'quoted'") == "'quoted'"


def test_the_file_of_questions_gives_names_back(tmp_path: Path) -> None:
    lines = [Line(f"{name}.png", "=a", 0.5, "q") for name in FORMULAS[:4]]
    write_lines(tmp_path / "l.csv", lines)
    cells = list(csv.reader((tmp_path / "l.csv").open(newline="")))
    assert all(row[0][0] == "'" for row in cells[1:])
    assert read_lines(tmp_path / "l.csv") == lines


def test_a_terminal_shows_names_and_does_not_obey_them(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "a\x1b[2J\x1b]0;title\x07b\x9b31m\u202egnp.exe\udcff"
    table(["model \x1b[31m", "accuracy %"], [(hostile, "1.0")])
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\\x1b[2J" in shown
    assert set(printable(hostile)) <= set(map(chr, range(32, 127)))
    assert printable("naïve 東京\tx\n") == "naïve 東京\tx\n"
    assert str(UserError(f"no model\nnamed {hostile}")).isprintable()


def test_a_long_message_keeps_both_its_ends() -> None:
    told = str(UserError("begins " + "x " * 5000, hint="Ends."))
    assert len(told) <= LONGEST
    assert told.startswith("begins")
    assert told.endswith("Ends.")


@pytest.mark.parametrize("shard", ["../secret.safetensors", "/etc/passwd", "a/../../b", ""])
def test_an_index_reaches_nothing_beside_its_shards(shard: str, tmp_path: Path) -> None:
    index = tmp_path / "m" / "model.safetensors.index.json"
    index.parent.mkdir()
    (tmp_path / "secret.safetensors").write_bytes(b"x")
    index.write_text(json.dumps({"weight_map": {"a": shard}}))
    with pytest.raises(UserError):
        indexed_files(index)
