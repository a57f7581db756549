"""An index holds what the files say: from many writers, after changes, of two folders, whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import index_writers
import stockpot
from commands import invoke
from hand_made import clean_cell
from index_places import Place
from stockpot.board.site import leaderboard
from stockpot.errors import UserError
from stockpot.results.index.index import rebuilt
from stockpot.results.index.open import open_index
from stockpot.results.schema import CellResult
from stockpot.results.store import ResultStore, load_results

WRITERS, CELLS = 8, 4


def cell(model: str, share: float, *, created: str = "2026-01-01", data: str = "toy") -> CellResult:
    found = clean_cell(model, data, np.arange(40) < 40 * share)
    about = found.provenance.model_copy(update={"created": created})
    return found.model_copy(update={"provenance": about})


def run_folder(path: Path, *cells: CellResult) -> Path:
    store = ResultStore(path / "results")
    for one in cells:
        store.save(one)
    return path


def test_many_writers_lose_nothing_and_write_nothing_twice(place: Place, tmp_path: Path) -> None:
    """None of them finds tables there when it begins."""
    script = Path(index_writers.__file__)
    done = subprocess.run(
        [sys.executable, script, place.url, tmp_path / "run", str(WRITERS), str(CELLS)],
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    names = {f"w{w}-{n}" for w in range(WRITERS) for n in range(CELLS)}
    names |= {f"shared-{n}" for n in range(CELLS)}
    assert sorted(name for (name,) in place.ask("SELECT model FROM cells")) == sorted(names)
    # Of every cell all scores, each once: value number/1024 in each of the severities 0, 1, 2.
    rows = place.ask("SELECT model, severity, value FROM results")
    assert sorted(rows) == sorted(
        (name, float(at), int(name.partition("-")[2]) / 1024)
        for name in names
        for at in range(index_writers.SCORES)
    )
    assert len(place.ask("SELECT cell FROM documents")) == len(names)
    with open_index(place.url) as index:
        assert not index.behind(thorough=True)


def test_an_index_that_was_told_equals_one_made_from_the_files(
    place: Place, tmp_path: Path
) -> None:
    folder = run_folder(tmp_path / "run", cell("a", 0.5), cell("b", 0.75), cell("c", 0.25))
    columns = "model, metric, value, n, question, sha256, file"
    told = f"SELECT {columns} FROM cells JOIN scores ON cell = id ORDER BY model"
    with open_index(place.url, write=True) as index:
        for path in sorted((folder / "results").iterdir()):
            index.add(path)
            index.add(path)
    before = place.ask(told)
    assert [row[:3] for row in before] == [
        ("a", "accuracy", 0.5), ("b", "accuracy", 0.75), ("c", "accuracy", 0.25),
    ]  # fmt: skip
    place.ask("UPDATE scores SET value = 0")
    rebuilt(place.url)
    assert place.ask(told) == before


def test_it_says_when_it_is_behind(sqlite_index: Place, tmp_path: Path) -> None:
    place = sqlite_index
    folder = run_folder(tmp_path / "run", cell("a", 0.5), cell("b", 0.5), cell("c", 0.5))
    a, b, c = sorted((folder / "results").iterdir())
    with open_index(place.url, write=True) as index:
        index.update(folder)
        assert not index.behind()
        os.utime(a, (1, 1))  # later or earlier by the clock alone
        assert not index.behind()
        run_folder(folder, cell("d", 0.5))
        b.unlink()
        stat = c.stat()
        c.write_text(c.read_text().replace("0.5", "0.4"))
        os.utime(c, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # a clock that was put back
        assert str(index.behind()[str(folder)]) == "1 new, 1 gone"
        assert str(index.behind(thorough=True)[str(folder)]) == "1 new, 1 changed, 1 gone"
    told = invoke("results", "query", "model=d", "--index", place.url)
    assert told.exit_code == 0
    assert "the index is behind its files" in told.output
    checked = invoke("results", "index", "--check", "--index", place.url)
    assert checked.exit_code == 1
    assert "1 new, 1 changed, 1 gone" in checked.output
    assert invoke("results", "index", "--rebuild", "--index", place.url).exit_code == 0
    assert dict(place.ask("SELECT model, value FROM results")) == {"a": 0.5, "c": 0.4, "d": 0.5}
    assert "up to date" in invoke("results", "index", "--check", "--index", place.url).output


def test_two_folders_in_one_index(place: Place, tmp_path: Path) -> None:
    """A question that both answer counts once, with the later answer, as for the leaderboard."""
    first = run_folder(tmp_path / "all" / "one", cell("a", 0.5), cell("b", 0.6))
    second = run_folder(
        tmp_path / "all" / "two", cell("a", 0.7, created="2026-02-02"), cell("c", 0.8)
    )
    told = invoke("results", "index", tmp_path / "all", "--index", place.url)
    assert "4 cells of 2 folders" in told.output
    with open_index(place.url) as index:
        rows = index.query(columns=["model", "value"]).rows
        assert rows == [("a", 0.7), ("b", 0.6), ("c", 0.8)]
        found = index.results()
        assert {one.key.model: one.scores[0].value for one in found} == dict(rows)
        assert index.results(first) == load_results(first)
    files = leaderboard([tmp_path / "all"], tmp_path / "of_files")
    assert invoke("leaderboard", "--index", place.url, "-o", tmp_path / "of_index").exit_code == 0
    for name in ("leaderboard.json", "csv/results-v1.csv", "index.html"):
        assert (tmp_path / "of_index" / name).read_bytes() == (files.folder / name).read_bytes()
    plain = stockpot.compare(first, second, model="b", against="c")
    words = ("compare", "--index", place.url, "--model", "b", "--against", "c", "--json")
    assert json.loads(invoke(*words).output)["rows"] == [row._asdict() for row in plain.rows]
    assert json.loads(invoke(*words, first, second).output)["rows"] == [
        row._asdict() for row in plain.rows
    ]
    invoke("results", "index", second, "--forget", "--index", place.url)
    assert place.ask("SELECT model, value FROM results ORDER BY model") == [("a", 0.5), ("b", 0.6)]


def test_cells_are_told_as_they_are_done(
    perfect: Any, toy_data: Any, sqlite_index: Place, tmp_path: Path
) -> None:
    place, seen = sqlite_index, []
    folder = tmp_path / "run"

    def done(*_: object) -> None:
        seen.append(len(place.ask("SELECT id FROM cells")))

    measure = stockpot.measure
    results = measure(
        perfect, ["clean", "calibration"], data=toy_data, out=folder, index=place.url, done=done
    )
    assert seen == [1, 2]
    assert place.ask("SELECT DISTINCT folder FROM cells") == [(str(folder),)]
    with open_index(place.url) as index:
        found = sorted(index.results(), key=lambda one: one.key.measure)
        assert found == sorted(results, key=lambda one: one.key.measure)
    # One that breaks in the middle costs nothing but its own rows, and says so.
    (tmp_path / "other").mkdir()

    def broken(*_: object) -> None:
        Path(place.url).write_text("no database any more " * 300)

    with pytest.warns(UserWarning, match="results index"):
        saved = measure(
            perfect, ["clean", "calibration"], data=toy_data, out=tmp_path / "other",
            index=place.url, done=broken,
        )  # fmt: skip
    assert load_results(tmp_path / "other") == sorted(saved, key=lambda one: one.key.measure)
    with pytest.raises(UserError, match="give out"):
        measure(perfect, "clean", data=toy_data, index=place.url)


def test_a_recipe_names_an_index(pico_vit: Path, toy_file: Path, tmp_path: Path) -> None:
    """Cells of a recipe that was changed since are not in it any more; their files are."""
    file, out = tmp_path / "index.db", tmp_path / "run"
    recipe = {
        "version": 1,
        "device": "cpu",
        "index": str(file),
        "data": {"toy": {"dataset": str(toy_file), "limit": 8}},
        "models": {"vit": {"load": str(pico_vit)}},
        "measure": {"with": [{"measure": "clean", "data": "toy"}]},
    }
    stockpot.run(recipe, out=out)
    stockpot.run(recipe, out=out, seed=1)
    with open_index(file) as index:
        assert index.query("metric=accuracy", columns=["model", "seed", "n"]).rows == [
            ("vit", 1, 8)
        ]
        assert len(load_results(out, stale=True)) == 2
        assert not index.behind(thorough=True)
