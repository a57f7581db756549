"""After an edit only what depends on it is made anew, and the results are those of a fresh folder.

Each row of the table edits a recipe that was followed before. What was made anew is read off the
files; what should be there is computed in an empty folder.
"""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import stockpot
from run_recipes import pico_model, pico_recipe
from stockpot.results.store import load_results
from stockpot.run.follow import preview

Recipe = dict[str, Any]
ALL = {"base", "tuned", "moved", "line-alpha=0.2", "line-alpha=0.8", "soup", "informed", "best"}
MADE = (ALL - {"base"}) | {"new"}


def cells(models: set[str], *measures: str) -> set[tuple[str, str]]:
    return {(model, measure) for model in models for measure in measures or ("clean", "corruption")}


class Edit(NamedTuple):
    change: Callable[[Recipe, Path], None]
    models: set[str]
    """Those that are made anew."""
    cells: set[tuple[str, str]]
    why: str = ""
    """What is said of one of them."""


def put(path: str, value: Any) -> Callable[[Recipe, Path], None]:
    def change(recipe: Recipe, place: Path) -> None:
        *parents, last = path.split("/")
        inner: Any = recipe
        for key in parents:
            inner = inner[int(key) if isinstance(inner, list) else key]
        inner[last] = value

    return change


def replace_b(recipe: Recipe, place: Path) -> None:
    shutil.rmtree(place / "b")
    pico_model(place / "b", seed=9)


def remove_saved(recipe: Recipe, place: Path) -> None:
    (place / "learned.safetensors").unlink()


EDITS = {
    "nothing": Edit(put("report/title", "Another"), set(), set()),
    "a parameter of a fusion": Edit(
        put("fuse/moved/scale", 0.9), {"moved"}, cells({"moved"}),
        "moved: made anew (scale 0.5 -> 0.9)",
    ),
    "a method of a fusion": Edit(
        put("fuse/moved/method", "magmax"), {"moved"}, cells({"moved"}), "task_arithmetic -> magmax"
    ),
    "members of a fusion, which is the baseline": Edit(
        put("fuse/soup/models", ["a", "b", "base"]), {"soup"},
        cells({"soup"}) | cells(ALL, "corruption"), "member base added",
    ),
    "training": Edit(
        put("harden/tuned/lr", 0.1), {"tuned", "moved"}, cells({"tuned", "moved"}), "lr 0.01 -> 0.1"
    ),
    "a new model": Edit(
        put("models/new/seed", 5), {"new", "tuned", "moved"}, cells({"tuned", "moved"}),
        "new: made anew (seed 0 -> 5)",
    ),
    "shots of a seasoning": Edit(
        put("season/best/shots", 9), {"best"}, cells({"best"}), "best: made anew (shots 6 -> 9)"
    ),
    "another value of a sweep": Edit(
        put("fuse/line/sweep", {"alpha": [0.2, 0.5, 0.8]}), {"line-alpha=0.5"},
        cells({"line-alpha=0.5"}),
    ),
    "the images that are measured": Edit(put("data/toy/limit", 16), set(), cells(ALL)),
    "the images that are learned from": Edit(
        put("data/seen/limit", 30), {"tuned", "moved", "informed", "best"},
        cells({"tuned", "moved", "informed", "best"}), "data",
    ),
    "a parameter of a measure": Edit(
        put("measure/with/1/severities", [2]), set(), cells(ALL, "corruption")
    ),
    "a member replaced on the disk": Edit(
        replace_b, {"soup", "informed", "best"},
        cells({"soup", "informed", "best"}) | cells(ALL, "corruption"),
        "member b has other content",
    ),
    "the seed": Edit(
        put("seed", 3), {"tuned", "moved", "informed", "best"}, cells(ALL), "seed 0 -> 3"
    ),
    "what was learned is gone": Edit(
        remove_saved, {"informed"}, set(), "learned.safetensors is gone"
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Recipe]:
    """A place with data, models, and a run of the recipe."""
    place = tmp_path_factory.mktemp("followed")
    data = _toy_file(place / "toy.npz")
    recipe = pico_recipe(place, data)
    stockpot.run(recipe, out=place / "run")
    shutil.copytree(place, _aside(place))
    return place, recipe


def _aside(place: Path) -> Path:
    return place.with_name(f"{place.name}-aside")


def _toy_file(path: Path) -> Path:
    import numpy as np

    from pico import CLASSES, make_dataset

    data = make_dataset()
    pixels = data.images.pixels.permute(0, 2, 3, 1).numpy()  # type: ignore[attr-defined]
    np.savez(path, images=pixels, labels=data.labels.numpy(), classes=np.array(CLASSES))
    return path


@pytest.fixture
def copied(followed: tuple[Path, Recipe]) -> tuple[Path, Recipe]:
    """The same, as it was; the test may change it."""
    place, recipe = followed
    shutil.rmtree(place)
    shutil.copytree(_aside(place), place)
    return place, copy.deepcopy(recipe)


def yaml_moved(value: Any, before: str, after: str) -> Any:
    if isinstance(value, dict):
        return {key: yaml_moved(item, before, after) for key, item in value.items()}
    if isinstance(value, list):
        return [yaml_moved(item, before, after) for item in value]
    return value.replace(before, after) if isinstance(value, str) else value


def marks(folder: Path) -> dict[str, tuple[int, int]]:
    """What tells a file that was written anew from the one before."""
    found = {}
    for path in folder.iterdir():
        file = next(path.rglob("*.safetensors")) if path.is_dir() else path
        found[path.name] = (file.stat().st_ino, file.stat().st_mtime_ns)
    return found


def weights(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.rglob("*.safetensors"))]


def scores(run: Path) -> dict[tuple[str, str, str], Any]:
    return {
        (cell.key.model, cell.key.measure, cell.key.data): (cell.scores, cell.outcomes)
        for cell in load_results(run)
    }


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_remakes_what_depends_on_it(
    name: str, copied: tuple[Path, Recipe], tmp_path: Path
) -> None:
    edit = EDITS[name]
    place, recipe = copied
    run = place / "run"
    models, results = marks(run / "models"), marks(run / "results")
    before = {path.name: weights(path) for path in (run / "models").iterdir()}
    changed = copy.deepcopy(recipe)
    edit.change(changed, place)
    asked = preview(changed, out=run)
    assert marks(run / "models") == models  # asking changes nothing
    said: list[str] = []
    stockpot.run(changed, out=run, say=said.append)
    after = marks(run / "models")
    anew = {model for model in after if after[model] != models.get(model)}
    assert anew == edit.models
    assert {verdict.name for verdict in asked.models if not verdict.there} == edit.models
    written = marks(run / "results")
    measured = {
        (cell.key.model, cell.key.measure)
        for path in (run / "results").iterdir()
        for cell in load_results(path)
        if written[path.name] != results.get(path.name)
    }
    # A model that was made anew may come out as it was (another draw of shots may choose the same
    # soup, which depends on the machine); then its cells stay.
    equal = {model for model in edit.models if weights(run / "models" / model) == before.get(model)}
    assert measured <= edit.cells
    assert {model for model, _ in edit.cells - measured} <= equal
    assert {(c.cell.model.name, c.cell.measure) for c in asked.cells if not c.there} >= edit.cells
    assert sum("already made" in line for line in said) == len(after) - len(anew)
    assert edit.why in "\n".join(said)
    assert not [path for path in (run / "models").iterdir() if path.name.startswith(".")]
    # What is made and measured by the recipe as it was is there already, in a folder once empty.
    as_it_was = {**changed, "report": recipe["report"]} == recipe and edit.change is not replace_b
    known = _aside(place) / "run"
    fresh = known if as_it_was else stockpot.run(changed, out=tmp_path / "fresh").folder
    assert scores(run) == scores(fresh)


def test_the_copied_place_needs_nothing(followed: tuple[Path, Recipe], tmp_path: Path) -> None:
    """Where inputs lie decides nothing; their content does."""
    original, recipe = followed
    place = tmp_path / "place"
    shutil.copytree(_aside(original), place)
    before = marks(place / "run" / "models"), marks(place / "run" / "results")
    stockpot.run(yaml_moved(recipe, str(original), str(place)), out=place / "run")
    assert (marks(place / "run" / "models"), marks(place / "run" / "results")) == before


def test_a_child_of_equal_weights_is_kept(copied: tuple[Path, Recipe]) -> None:
    place, recipe = copied
    recipe = copy.deepcopy(recipe)
    recipe["harden"]["tuned"]["epochs"] = 0  # whatever the rate, the weights stay
    stockpot.run(recipe, out=place / "run")
    before = marks(place / "run" / "models")
    said: list[str] = []
    recipe["harden"]["tuned"]["lr"] = 0.5
    stockpot.run(recipe, out=place / "run", say=said.append)
    after = marks(place / "run" / "models")
    assert {name for name in after if after[name] != before[name]} == {"tuned"}
    assert "moved: already made" in said


@pytest.mark.parametrize("step", ["made", "old aside", "in place"])
def test_a_kill_while_replacing_loses_nothing(
    step: str, copied: tuple[Path, Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, recipe = copied
    run, models = place / "run", place / "run" / "models"
    before = marks(models)["soup"]
    changed = copy.deepcopy(recipe)
    changed["fuse"]["soup"]["models"] = ["a", "base"]

    class Killed(BaseException):
        pass

    renames = {"made": 0, "old aside": 1, "in place": 2}[step]
    seen: list[object] = []

    def replace(source: Path, target: Path) -> None:
        if Path(source).name in ("soup", ".soup.anew") and len(seen) == renames:
            raise Killed
        seen.append(source) if Path(source).name in ("soup", ".soup.anew") else None
        os.rename(source, target)

    def remove(path: Path, ignore_errors: bool = False) -> None:
        if Path(path).name == ".soup.before" and seen and len(seen) == renames:
            raise Killed
        real(path, ignore_errors=ignore_errors)

    real = shutil.rmtree
    with monkeypatch.context() as patch:
        patch.setattr("stockpot.run.reuse.os.replace", replace)
        patch.setattr("stockpot.run.reuse.shutil.rmtree", remove)
        with pytest.raises(Killed):
            stockpot.run(changed, out=run)
    kept = {path.name for path in models.iterdir() if "soup" in path.name}
    assert (
        kept
        == {
            "made": {"soup", ".soup.anew"},
            "old aside": {".soup.before", ".soup.anew"},
            "in place": {"soup", ".soup.before"},
        }[step]
    )
    said: list[str] = []
    stockpot.run(recipe, out=run, say=said.append)  # back to the recipe before: the old one is kept
    assert "soup: already made" in said
    assert marks(models)["soup"] == before
    assert {path.name for path in models.iterdir()} == MADE


def test_a_killed_replacement_is_finished(copied: tuple[Path, Recipe]) -> None:
    place, recipe = copied
    models = place / "run" / "models"
    changed = copy.deepcopy(recipe)
    changed["fuse"]["soup"]["models"] = ["a", "base"]
    stockpot.run(changed, out=place / "other")
    shutil.copytree(place / "other" / "models" / "soup", models / ".soup.anew")
    mark = marks(models)[".soup.anew"]
    (models / "soup").rename(models / ".soup.before")
    stockpot.run(changed, out=place / "run")
    assert marks(models)["soup"] == mark
    assert {path.name for path in models.iterdir()} == MADE


def test_a_model_without_a_record_is_made_anew(copied: tuple[Path, Recipe]) -> None:
    place, recipe = copied
    (place / "run" / "models" / "soup" / "stockpot.json").unlink()
    lock = place / "run" / "models" / ".soup.lock"
    lock.touch()  # of the run that was making it, and was killed
    said: list[str] = []
    stockpot.run(recipe, out=place / "run", say=said.append)
    assert any("soup: made anew (it has no record" in line for line in said)
    assert not lock.exists()


@pytest.mark.parametrize("end", ["", ".safetensors"])
def test_a_fusion_that_loads_follows_the_one_that_saves(
    copied: tuple[Path, Recipe], end: str
) -> None:
    place, recipe = copied
    recipe = copy.deepcopy(recipe)
    entry = {"method": "fisher", "models": ["a", "b"], "load": str(place / f"learned{end}")}
    recipe["fuse"] = {"again": entry, **recipe["fuse"]}
    first = stockpot.run(recipe, out=place / "run")
    assert first.models["again"].endswith("again")
    recipe["fuse"]["informed"]["examples"] = 20
    before = marks(place / "run" / "models")
    stockpot.run(recipe, out=place / "run")
    after = marks(place / "run" / "models")
    assert {name for name in after if after[name] != before[name]} == {"informed", "again"}


def test_a_model_whose_weights_are_gone_is_made_anew(copied: tuple[Path, Recipe]) -> None:
    place, recipe = copied
    lost = place / "run" / "models" / "moved" / "model.safetensors"
    before = lost.read_bytes()
    lost.unlink()
    said: list[str] = []
    stockpot.run(recipe, out=place / "run", say=said.append)
    assert any(line.startswith("moved: made anew (its weights are gone)") for line in said)
    assert lost.read_bytes() == before


def test_a_record_of_an_earlier_version_is_told_in_few_words(copied: tuple[Path, Recipe]) -> None:
    place, recipe = copied
    soup = place / "run" / "models" / "soup"
    (soup / "stockpot.json").unlink()
    (soup / "fusion.json").write_text('{"method": "average", "params": {}, "version": "0.1.0"}')
    results = marks(place / "run" / "results")
    said: list[str] = []
    stockpot.run(recipe, out=place / "run", say=said.append)
    assert any("soup: made anew (its record is of an earlier version" in line for line in said)
    assert not (soup / "fusion.json").exists()
    # The weights came out the same, and so nothing has to be measured again.
    assert marks(place / "run" / "results") == results


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_a_killed_training_of_another_recipe_is_not_gone_on_with(
    engine: str, copied: tuple[Path, Recipe], tmp_path: Path
) -> None:
    """A training stopped midway, then an edited recipe: it trains anew."""
    import torch

    from stockpot.harden import run as harden_run
    from stockpot.harden.state import Resume

    place, recipe = copied
    run = place / "run"
    changed, edited = copy.deepcopy(recipe), copy.deepcopy(recipe)
    changed["harden"]["tuned"]["epochs"] = 4
    edited["harden"]["tuned"] |= {"epochs": 4, "lr": 0.02}

    def stop(what: str, done: int, total: int) -> None:
        if what.startswith("tuned") and done >= total // 2:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(harden_run, "Resume", lambda path: Resume(path, every=1))
        with pytest.raises(KeyboardInterrupt):
            stockpot.run(changed, out=run, progress=stop)
    (state,) = (run / "models").glob(".*tuned*.partial/*.pt")
    assert torch.load(state, weights_only=True)["step"] > 0
    stockpot.run(edited, out=run, engine=engine)
    fresh = stockpot.run(edited, out=tmp_path / "fresh")
    assert scores(run) == scores(fresh.folder)
    assert not [path for path in (run / "models").iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("method", ["dare", "della", "knots", "randes"])
def test_the_seed_of_a_run_draws_what_a_fusion_drops(method: str, tmp_path: Path) -> None:
    recipe = {
        "version": 1,
        "models": {name: {"load": name} for name in ("icons-vit", "icons-vit-cutmix")},
        "fuse": {"soup": {"method": method, "models": ["icons-vit-cutmix"], "base": "icons-vit"}},
    }

    def asked(**changes: Any) -> str:
        return preview(recipe, out=tmp_path, **changes).digests["soup"]

    own = asked()
    assert asked(seed=3) == asked(**{"fuse.soup.seed": 3}) != own
    assert asked(seed=3, **{"fuse.soup.seed": 5}) == asked(**{"fuse.soup.seed": 5})
    assert asked(seed=0) == own
