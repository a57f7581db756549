"""What an index is asked: filters, one SELECT, and nothing that changes anything."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

from commands import invoke
from hand_made import clean_cell
from index_places import Place
from stockpot.errors import BadParameterError, UnknownNameError, UserError
from stockpot.results.index.open import open_index
from stockpot.results.schema import CellResult, Score
from stockpot.results.store import ResultStore

HOSTILE = [
    "plain",
    "'); DROP TABLE cells; --",
    '"; DELETE FROM scores; --',
    "100%_\\",
    "=cmd|' /C calc'!A0",
    "\x1b[2J\x07",
    "nul\0byte",
    "{model} %s %(x)s :x ?",
    "ünï cödé 犬",
]


def named(model: str) -> CellResult:
    cell = clean_cell(model, model, np.arange(4) < 2)
    scores = [
        Score(
            metric=model,
            value=at / 4,
            n=4,
            condition={"severity": at, "eps": 8 / 255, model: model},
        )
        for at in range(3)
    ]
    return cell.model_copy(update={"scores": scores})


@pytest.fixture
def hostile(place: Place, tmp_path: Path) -> Place:
    store = ResultStore(tmp_path / "run" / "results")
    for name in HOSTILE:
        store.save(named(name))
    with open_index(place.url, write=True) as index:
        index.update(tmp_path / "run")
    return place


WRITING = [
    "WITH gone AS (DELETE FROM cells RETURNING *) SELECT * FROM gone",
    "WITH x AS (SELECT 1) DELETE FROM cells",
    "WITH x AS (SELECT 1) INSERT INTO stockpot_index SELECT 7",
    "SELECT 1; DELETE FROM cells",
    "SELECT 1; COMMIT; DELETE FROM cells; COMMIT",
    "SELECT 1) AS x; DELETE FROM cells; --",
    "VALUES (1); DROP VIEW results",
    "SELECT load_extension('x')",
    "SELECT 1 INTO made",
    "SELECT nextval('cells_id_seq')",
    "SELECT set_config('transaction_read_only', 'off', false)",
]


def test_names_are_never_sql_and_asking_never_writes(hostile: Place, tmp_path: Path) -> None:
    before = [hostile.ask(f"SELECT * FROM {t}") for t in ("cells", "scores", "documents")]
    assert len(before[0]) == len(HOSTILE)
    with open_index(hostile.url) as index:
        for name in HOSTILE:
            kept = name.replace("\0", "\ufffd")
            asked = (f"model={name}", f"data={name}", f"metric={name}", "severity>=1", "eps=8/255")
            assert index.query(*asked, columns=["model", "severity"]).rows == [
                (kept, 1.0), (kept, 2.0),
            ]  # fmt: skip
            found = [one for one in index.results() if one.key.model == name]
            assert found == [named(name)]
        assert {row[0] for row in index.query("model~%", columns=["model"]).rows} == {
            "100%_\\", "{model} %s %(x)s :x ?",
        }  # fmt: skip
        assert index.query("condition.plain=plain", "condition.severity<1").rows[0][:2] == (
            "plain",
            "plain",
        )
        like = index.query("SELECT model FROM results WHERE model LIKE '100%' ORDER BY severity")
        assert like.rows == [("100%_\\",)] * 3
        for sql in WRITING:
            with pytest.raises(UserError):
                index.query(sql)
    # What a transaction that only reads does not prevent, its end does.
    if hostile.url.startswith("postgresql"):
        with open_index(hostile.url) as index:
            index.query("SELECT lo_create(4711)")
        assert hostile.ask("SELECT * FROM pg_largeobject_metadata") == []
    assert [hostile.ask(f"SELECT * FROM {t}") for t in ("cells", "scores", "documents")] == before
    told = invoke("results", "query", "severity=0", "--columns", "model", "--index", hostile.url)
    assert "\x1b" not in told.output
    assert "\x07" not in told.output


def test_answers_as_table_csv_and_json(sqlite_index: Place, tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "run" / "results")
    for at, name in enumerate(["a", "b, or not", "c"]):
        store.save(clean_cell(name, "toy", np.arange(4) < at))
    where = ("--index", sqlite_index.url)
    assert invoke("results", "index", tmp_path / "run", *where).exit_code == 0
    asked = ("results", "query", "value>0", "--columns", "model,value", *where)
    expected = [{"model": "b, or not", "value": 0.25}, {"model": "c", "value": 0.5}]
    assert json.loads(invoke(*asked, "--format", "json").output) == expected
    rows = list(csv.DictReader(io.StringIO(invoke(*asked, "--format", "csv").output)))
    assert [(row["model"], float(row["value"])) for row in rows] == [
        ("b, or not", 0.25), ("c", 0.5),
    ]  # fmt: skip
    assert invoke(*asked).output.split("\n")[1].split() == ["b,", "or", "not", "0.25"]
    twice = invoke("results", "query", "SELECT n, n FROM results", "--limit", "1",
                   "--format", "json", *where)  # fmt: skip
    assert json.loads(twice.output) == [{"n": 4, "n_2": 4}]
    assert invoke("results", "query", "value>1", *where).output == "no rows\n"
    with open_index(sqlite_index.url) as index:
        for wrong, error in {
            "modell=a": UnknownNameError,
            "value>high": BadParameterError,
            "what is it": BadParameterError,
            "SELECT nothing FROM results": BadParameterError,
        }.items():
            with pytest.raises(error):
                index.query(wrong)
        with pytest.raises(BadParameterError):
            index.query("SELECT 1", "model=a")


def test_what_is_no_index(tmp_path: Path, sqlite_index: Place) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a database, though it is long enough to be looked at " * 9)
    for given, said in {
        str(tmp_path / "none.db"): "there is no index at",
        str(text): "file is not a database",
        "mysql://me:secret@host/x": "got mysql://",
        "postgresql://me:secret@127.0.0.1:1/x": "me:***@127.0.0.1",
        "postgresql://me:secret@host:port/y": "expected a file, or a URL",
    }.items():
        told = invoke("results", "query", "--index", given)
        assert told.exit_code == 1
        assert said in told.output
        assert "secret" not in told.output
    assert text.read_text().startswith("not a database")
    sqlite_index.ask("CREATE TABLE cells (theirs TEXT)")
    told = invoke("results", "index", tmp_path, "--index", sqlite_index.url)
    assert "tables of another program (cells)" in told.output
    assert sqlite_index.ask("SELECT name FROM sqlite_master") == [("cells",)]


def test_an_index_of_another_version_is_made_again(sqlite_index: Place, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ResultStore(folder / "results").save(clean_cell("a", "toy", np.arange(4) < 2))
    invoke("results", "index", folder, "--index", sqlite_index.url)
    sqlite_index.ask("UPDATE stockpot_index SET version = 99")
    told = invoke("results", "query", "--index", sqlite_index.url)
    assert told.exit_code == 1
    assert "is of version 99" in told.output
    again = invoke("results", "index", folder, "--rebuild", "--index", sqlite_index.url)
    assert "1 cells of 1 folders" in again.output
