"""A run folder knows which of its models and cells belong to its present recipe."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import stockpot
from commands import invoke
from run_recipes import pico_model
from stockpot.errors import UserError
from stockpot.results.manifest import read_manifest
from stockpot.results.store import load_results, scratch_name
from stockpot.run.folder import contents, prune, runs_in


@pytest.fixture
def recipe(pico_vit: Path, toy_file: Path, tmp_path: Path) -> dict[str, Any]:
    base = pico_model(tmp_path / "base", seed=7)
    return {
        "version": 1,
        "device": "cpu",
        "data": {"toy": {"dataset": str(toy_file), "limit": 20}},
        "models": {"a": {"load": str(pico_vit)}, "base": {"load": str(base)}},
        "fuse": {
            "soup": {"method": "wise_ft", "base": "base", "models": ["a"]}
            | {"sweep": {"alpha": [0.2, 0.8]}}
        },
        "measure": {"models": ["a", "soup"], "with": [{"measure": "clean", "data": "toy"}]},
        "report": {"title": "Twice"},
    }


@pytest.fixture
def twice(recipe: dict[str, Any], tmp_path: Path) -> Path:
    """A run followed with 20 images and two points, then with 24 images and one."""
    stockpot.run(recipe, out=tmp_path / "runs" / "twice")
    changed = copy.deepcopy(recipe)
    changed["fuse"]["soup"]["sweep"] = {"alpha": [0.8]}
    changed["data"]["toy"]["limit"] = 24
    stockpot.run(changed, out=tmp_path / "runs" / "twice")
    return tmp_path / "runs" / "twice"


def test_what_a_run_gives_back(recipe: dict[str, Any], pico_vit: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    came = stockpot.run(recipe, out=out, **{"data.toy.limit": 8, "seed": 4})
    assert came.folder == out
    assert came.models["a"] == str(pico_vit)
    assert Path(came.models["soup-alpha=0.2"]).is_dir()
    assert {cell.data.n for cell in came.results} == {8}
    assert {cell.key.seed for cell in came.results} == {4}
    assert came.report == out / "report.html"
    assert came.report.is_file()
    manifest = read_manifest(out)
    assert manifest is not None
    assert set(manifest.models) == {"soup-alpha=0.2", "soup-alpha=0.8"}
    assert set(manifest.cells) == {path.name for path in (out / "results").iterdir()}


def test_a_recipe_without_a_file_needs_a_folder(recipe: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="out=FOLDER"):
        stockpot.run(recipe)


def test_pages_and_readers_never_mix_two_questions(twice: Path, tmp_path: Path) -> None:
    assert {cell.data.n for cell in load_results(twice)} == {24}
    assert {cell.data.n for cell in load_results(twice / "results")} == {24}
    assert {cell.data.n for cell in load_results(twice, stale=True)} == {20, 24}
    assert {cell.key.model for cell in load_results(twice)} == {"a", "soup-alpha=0.8"}
    page = tmp_path / "page.html"
    assert invoke("report", twice, "-o", page).exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert "24 images" in text
    assert "20 images" not in text
    assert "soup-alpha=0.2" not in text


def test_runs_are_listed_shown_and_pruned(twice: Path) -> None:
    (one,) = runs_in(twice.parent)
    assert (one.number("model", "present"), one.number("cell", "present")) == (1, 2)
    assert (one.number("model", "stale"), one.number("cell", "stale")) == (1, 3)
    listed = json.loads(invoke("runs", "list", twice.parent, "--json").output)
    assert listed[0]["run"] == str(twice)
    assert listed[0]["stale"] == 4
    shown = json.loads(invoke("runs", "show", twice, "--json").output)
    stale = {row["path"] for row in shown if row["state"] == "stale"}
    assert len(stale) == 4
    told = invoke("runs", "prune", twice, "--dry-run").output
    assert all(path in told for path in stale)
    assert all(Path(path).exists() for path in stale)
    assert invoke("runs", "prune", twice).exit_code == 0
    assert not any(Path(path).exists() for path in stale)
    assert {cell.data.n for cell in load_results(twice, stale=True)} == {24}
    assert "nothing is stale" in invoke("runs", "prune", twice).output
    assert "stale" not in invoke("runs", "show", twice).output


def test_what_was_measured_by_hand_counts(twice: Path, pico_vit: Path, toy_file: Path) -> None:
    words = ["measure", f"extra={pico_vit}", "--data", toy_file, "-o", twice, "--device", "cpu"]
    assert invoke(*words).exit_code == 0
    assert "extra" in {cell.key.model for cell in load_results(twice)}
    prune(twice)
    again = json.loads((twice / "run.json").read_text())
    assert len(again["added"]) == 1
    assert "extra" in {cell.key.model for cell in load_results(twice)}


def test_a_run_that_was_stopped_shows_what_is_missing(twice: Path) -> None:
    (twice / "models" / ".soup-alpha=0.8.partial").mkdir()
    gone = next((twice / "results").glob("a--clean--*.json"))
    present = set(read_manifest(twice).cells)  # type: ignore[union-attr]
    for path in (twice / "results").iterdir():
        if path.name in present and path.name.startswith("a--"):
            gone = path
    gone.unlink()
    begun = twice / "results" / ".unfinished"
    waits = begun / scratch_name(gone.stem.rpartition("--")[2])
    for folder in (waits, begun / scratch_name("0" * 12), begun / f"{waits.name}.earlier"):
        (folder / "search").mkdir(parents=True)
    states = {(item.kind, item.state) for item in contents(twice)}
    assert ("cell", "missing") in states
    assert str(begun / scratch_name("0" * 12)) in invoke("runs", "prune", twice, "--dry-run").output
    prune(twice)
    assert list(begun.iterdir()) == [waits]  # the cell that is missing goes on from it
    gone.touch()
    prune(twice)
    assert not begun.exists()
    # The training state of a model that is there is of no use.
    assert not (twice / "models" / ".soup-alpha=0.8.partial").exists()


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    for words in (("show",), ("prune",)):
        told = invoke("runs", *words, tmp_path / "thesis")
        assert told.exit_code == 1
        assert "not a run folder" in told.output
    assert "no runs under" in invoke("runs", "list", tmp_path).output


def test_a_dry_run_tells_what_a_run_would_do(recipe: dict[str, Any], tmp_path: Path) -> None:
    import yaml

    path, out = tmp_path / "r.yaml", tmp_path / "run"
    path.write_text(yaml.safe_dump(recipe))
    told = invoke("run", path, "-o", out, "--dry-run").output
    assert "model   soup-alpha=0.2: to make (not made yet)" in told
    assert "soup-alpha=0.2 x clean x toy: to measure (depends on soup-alpha=0.2)" in told
    assert not out.exists()
    assert invoke("run", path, "-o", out).exit_code == 0
    told = invoke("run", path, "-o", out, "--dry-run").output
    assert "to make" not in told
    assert "to measure" not in told
    told = invoke("run", path, "-o", out, "--dry-run", "--set", "data.toy.limit=9").output
    assert "to make" not in told
    assert told.count("to measure") == 3
