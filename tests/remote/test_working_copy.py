"""A run folder in storage: the same files as on disk, brought and sent whole."""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

import stockpot
from commands import invoke
from run_recipes import pico_model
from stockpot.errors import UserError
from stockpot.files import write_atomic
from stockpot.lock import HeldError
from stockpot.remote.address import address, local_path, shown
from stockpot.remote.storage import Storage
from stockpot.remote.working_copy import WorkingCopy, working_copy
from stockpot.results import load_results
from stockpot.results.index.open import open_index, rebuild_index
from stockpot.run.folder import LOCK

URL = "memory://bucket/run"


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    files = fsspec.filesystem("memory")
    files.store.clear()
    machine(monkeypatch, tmp_path, "one")
    yield files
    files.store.clear()


def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    """Go on as on another machine, with a disk of its own."""
    monkeypatch.setenv("STOCKPOT_CACHE", str(tmp_path / "machines" / name))


def there(files: Any) -> dict[str, bytes]:
    return {path.removeprefix("/bucket/run/"): files.cat(path) for path in files.find("/bucket")}


def on_disk(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def recipe(place: Path, data: Path) -> dict[str, Any]:
    for seed, name in enumerate("ab"):
        pico_model(place / name, seed)
    return {
        "version": 1,
        "device": "cpu",
        "data": {"toy": {"dataset": str(data)}},
        "models": {name: {"load": str(place / name)} for name in "ab"},
        "fuse": {
            "soup": {"method": "average", "models": ["a", "b"]},
            "line": {"method": "wise_ft", "models": ["soup"], "base": "a", "alpha": 0.5},
        },
        "measure": {"models": ["a", "soup", "line"], "with": [{"measure": "clean", "data": "toy"}]},
        "report": {"title": "Pico"},
    }


def scores(files: dict[str, bytes]) -> dict[str, Any]:
    """Name of a result file -> what it says, but when and how fast."""
    results = {n: json.loads(c) for n, c in files.items() if n.startswith("results/")}
    return {name: (found["key"], found["scores"]) for name, found in results.items()}


def test_a_run_in_storage_is_the_run_on_disk_and_goes_on_elsewhere(
    memory: Any, tmp_path: Path, toy_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = recipe(tmp_path, toy_file)
    stockpot.run(asked, out=f"file://{tmp_path / 'plain'}")
    came = stockpot.run(asked, out=URL)
    assert came.address == URL
    plain, stored = on_disk(tmp_path / "plain"), there(memory)
    assert set(stored) == set(plain)
    assert scores(stored) == scores(plain)
    weights = [name for name in plain if name.endswith(".safetensors")]
    assert len(weights) == 2
    assert all(stored[name] == plain[name] for name in weights)

    machine(monkeypatch, tmp_path, "two")
    lines: list[str] = []
    stockpot.run(asked, out=Path(URL), say=lines.append)  # pathlib folds the slashes
    assert lines == ["soup: already made", "line: already made"]
    again = there(memory)
    written = ("run.json", "report.html")  # with every run
    assert {n: c for n, c in again.items() if n not in written} == {
        n: c for n, c in stored.items() if n not in written
    }

    machine(monkeypatch, tmp_path, "three")
    assert scores(on_disk(tmp_path / "plain")).keys() == {
        f"results/{path.name}" for path in stockpot.results.store.result_files(URL)
    }
    assert len(load_results(URL)) == 3
    memory.rm("/bucket/run/report.html")
    done = invoke("report", URL)
    assert done.exit_code == 0, done.output
    assert f"report: {URL}/report.html" in done.output
    assert b"Pico" in memory.cat("/bucket/run/report.html")
    # Only what a page needs was brought.
    assert not list((tmp_path / "machines" / "three").rglob("*.safetensors"))

    memory.pipe("/bucket/run/results/other--clean--toy--0.json", b"{}")
    assert "results/other--clean--toy--0.json" in invoke("runs", "prune", URL).output
    assert not memory.exists("/bucket/run/results/other--clean--toy--0.json")
    asked["fuse"].pop("line")
    asked["measure"]["models"] = ["soup"]
    stockpot.run(asked, out=URL, fresh=True)
    left = there(memory)
    assert sum(name.startswith("results/") for name in left) == 1
    assert not any(name.startswith("models/line/") for name in left)


def test_measure_into_storage(memory: Any, pico_vit: Path, toy_file: Path) -> None:
    words = ("measure", pico_vit, "--data", toy_file, "--with", "clean", "--device", "cpu")
    done = invoke(*words, "-o", URL)
    assert done.exit_code == 0
    assert f"results: {URL}/results   page: stockpot report {URL}" in done.output
    (name,) = there(memory)
    assert name.startswith("results/")
    before = memory.info(f"/bucket/run/{name}")["created"]
    assert invoke(*words, "-o", URL).exit_code == 0
    assert memory.info(f"/bucket/run/{name}")["created"] == before


def test_an_index_knows_results_by_their_address_on_every_machine(
    memory: Any, tmp_path: Path, pico_vit: Path, toy_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "index.db"
    models = {"a": str(pico_vit), "b": str(pico_vit)}
    asked: dict[str, Any] = {"data": str(toy_file), "device": "cpu", "index": place}
    stockpot.measure({"a": models["a"]}, ["clean"], out=URL, **asked)
    machine(monkeypatch, tmp_path, "two")
    stockpot.measure(models, ["clean"], out=URL, **asked)
    stored = {f"{URL}/{name}" for name in there(memory)}
    with sqlite3.connect(place) as database:
        assert {row[0] for row in database.execute("SELECT path FROM cells")} == stored
        assert set(database.execute("SELECT folder FROM cells")) == {(URL,)}
    # The copy of the first machine is behind the store, which is asked before rows are removed.
    machine(monkeypatch, tmp_path, "one")
    with open_index(place, write=True) as index:
        assert [bool(changes) for changes in index.update().values()] == [False]
        assert len(index.results(URL)) == 2
    memory.rm("/bucket/run/results/" + next(n for n in stored if "/b--" in n).rpartition("/")[2])
    rebuild_index(place)
    assert [cell.key.model for cell in open_index(place).results(Path(URL))] == ["a"]
    assert open_index(place, write=True).forget(URL) == 1
    site = invoke("leaderboard", URL, "-o", tmp_path / "site")
    assert "1 models on 1 boards" in site.output, site.output
    done = invoke("compare", f"{URL}:a", f"{URL}:a")
    assert "+0.0 [-8.8, +8.8]" in done.output, done.output  # forty images without a difference
    assert "no model" in invoke("compare", f"{URL}:c", URL).output


def test_two_runs_on_one_machine_do_not_share_a_copy(
    memory: Any, tmp_path: Path, toy_file: Path
) -> None:
    """The lock is held from before anything is brought until the last file is sent."""
    held = []

    def look(self: WorkingCopy, **options: Any) -> None:
        held.append((self.folder / LOCK).is_file())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WorkingCopy, "pull", look)
        patch.setattr(WorkingCopy, "push", look)
        with working_copy(URL, lock=LOCK) as copy:
            assert held == [True]
            with pytest.raises(HeldError, match=f"{URL} is being written by another process"):
                stockpot.run(recipe(tmp_path, toy_file), out=URL)
            assert held == [True]
        assert held == [True, True]
    assert not copy.folder.exists()


VERSIONS = [
    {"models/m/w": b"1", "models/m/v": b"1", "models/m/stockpot.json": b"{1}"},
    {"models/m/w": b"22", "models/m/x": b"22", "models/m/stockpot.json": b"{2}"},
]


def write(folder: Path, number: int) -> None:
    shutil.rmtree(folder / "models", ignore_errors=True)
    files = {**VERSIONS[number], "run.json": b"{}", f"results/{number}.json": b"{}"}
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


class Killed(BaseException):
    pass


def test_a_kill_at_any_moment_leaves_no_mixture(
    memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sending and bringing are cut after every single step; models are whole or not there."""
    steps = 0
    allowed = 10**9
    real = {name: getattr(Storage, name) for name in ("put", "remove", "fetch")}

    def counted(name: str) -> Any:
        def step(self: Storage, *arguments: Any) -> Any:
            nonlocal steps
            if steps >= allowed:
                raise Killed
            steps += 1
            return real[name](self, *arguments)

        return step

    for name in real:
        monkeypatch.setattr(Storage, name, counted(name))

    def model(files: dict[str, bytes]) -> dict[str, bytes]:
        found = {name: content for name, content in files.items() if name.startswith("models/m/")}
        return found if "models/m/stockpot.json" in found else {}

    allowed_ends = 0
    for cut in range(40):
        memory.store.clear()
        allowed, steps = 10**9, 0
        machine(monkeypatch, tmp_path, f"maker {cut}")
        maker = WorkingCopy(URL)
        write(maker.folder, 0)
        maker.push()
        machine(monkeypatch, tmp_path, f"reader {cut}")
        reader = WorkingCopy(URL)
        reader.pull()
        assert model(on_disk(reader.folder)) == VERSIONS[0]
        machine(monkeypatch, tmp_path, f"maker {cut}")
        write(maker.folder, 1)
        allowed, steps = cut, 0
        ended = False
        try:
            maker.push()
            machine(monkeypatch, tmp_path, f"reader {cut}")
            WorkingCopy(URL).pull()
            ended = True
        except Killed:
            pass
        allowed = 10**9
        assert model(there(memory)) in ({}, *VERSIONS)
        machine(monkeypatch, tmp_path, f"reader {cut}")
        assert model(on_disk(WorkingCopy(URL).folder)) in ({}, *VERSIONS)
        # Whoever made it starts again and sends the rest; others then bring it.
        machine(monkeypatch, tmp_path, f"maker {cut}")
        with working_copy(URL) as again:
            assert model(on_disk(again.folder)) == VERSIONS[1], cut
        machine(monkeypatch, tmp_path, f"reader {cut}")
        with working_copy(URL) as last:
            assert model(on_disk(last.folder)) == VERSIONS[1]
        assert model(there(memory)) == VERSIONS[1]
        assert {"results/0.json", "results/1.json"} <= set(there(memory))
        allowed_ends += ended
        if ended:
            break
    assert allowed_ends == 1
    assert cut > 8


def test_finished_cells_and_training_states_are_sent_while_the_run_goes_on(
    memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stockpot.remote.working_copy.SECONDS", 0.01)
    with pytest.raises(Killed), working_copy(URL) as place:  # noqa: PT012
        names = ("results/a.json", "models/.m.partial/1.pt")
        for name in (*names, "models/n/w", "results/.unfinished/b/c.npz", "results/.a.tmp"):
            (place.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (place.folder / name).write_bytes(b"x")
        for _ in range(500):
            if set(there(memory)) == set(names):
                break
            time.sleep(0.01)
        assert set(there(memory)) == set(names)  # a model without its record is not whole
        raise Killed


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("gs://bucket/run", "pip install 'gcsfs'"),
        ("sea3://bucket/run", "no kind of storage is called 'sea3'"),
        ("https://example.org/run", "give no list of files"),
        ("memory://bucket/nothing", "holds no files"),
    ],
)
def test_what_cannot_be_opened_is_said_in_one_line(place: str, says: str) -> None:
    done = invoke("report", place)
    assert done.exit_code == 1
    assert says in done.output


def test_storage_that_takes_nothing_is_found_out_before_models_are_made(
    memory: Any, tmp_path: Path, toy_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise PermissionError("Access Denied")

    monkeypatch.setattr(type(memory), "put_file", refuse)
    lines: list[str] = []
    with (
        pytest.warns(UserWarning, match="no permission"),
        pytest.raises(UserError, match=r"written: no permission \(Access Denied\)"),
    ):
        stockpot.run(recipe(tmp_path, toy_file), out=URL, say=lines.append)
    assert not lines


def test_a_store_without_whole_puts_gets_files_by_a_move(tmp_path: Path) -> None:
    """fsspec's `dir` on the local disk stands for sftp and its like."""
    storage = Storage("memory://a")
    storage._scheme, storage._root = "sftp", str(tmp_path / "there")
    storage._files = fsspec.filesystem("file")
    (tmp_path / "x").write_bytes(b"1")
    first = storage.put(tmp_path / "x", "sub/x")
    (tmp_path / "x").write_bytes(b"2")
    assert storage.put(tmp_path / "x", "sub/x") != first
    assert on_disk(tmp_path / "there") == {"sub/x": b"2"}


def test_addresses() -> None:
    assert address(Path("s3://bucket/a/run/")) == "s3://bucket/a/run"
    assert address("C:/runs/one") is address("runs/one") is address("file:///tmp/a") is None
    assert local_path(Path("file:///tmp/a")) == Path("/tmp/a")
    assert local_path("runs/a") == Path("runs/a")
    assert shown(Path("s3://bucket/a"), "results") == "s3://bucket/a/results"
    assert shown("file:///tmp/a", "results") == "/tmp/a/results"
    for place, says in {"s3://b/a": "s3://b/a: expected a place", "file:///b/a": "as /b/a"}.items():
        with pytest.raises(UserError, match=says):
            write_atomic(Path(place), "")


@pytest.mark.parametrize("name", ["../../escaped", "models/../../escaped", "/escaped", "a\\..\\b"])
def test_names_that_lead_out_of_the_folder_are_refused(
    memory: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object of a store may be called anything."""
    copy = WorkingCopy("memory://bucket/run")
    memory.pipe("/bucket/run/run.json", b"{}")
    listed = {f"/bucket/run/{name}": {"size": 2, "created": 1.0}}
    monkeypatch.setattr(type(memory), "find", lambda *_, **__: listed)
    with pytest.raises(UserError, match="no name of a file in a run folder"):
        copy.pull()
    assert not copy.folder.exists()
