"""Seasoning in recipes, and its pictures from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from commands import invoke
from stockpot.cli import console
from stockpot.errors import UserError
from stockpot.recipe import load_recipe
from stockpot.run.check import check
from stockpot.run.order import order_of
from stockpot.run.plan import build_order, parents


def written(folder: Path, model: Path, data: Path, **season: Any) -> Path:
    entry = {"method": "grid", "models": ["one", "two"], "data": "toy", "shots": 12} | season
    recipe = {
        "version": 1,
        "device": "cpu",
        "data": {"toy": {"dataset": str(data)}},
        "models": {"one": {"load": str(model)}},
        "harden": {
            "two": {"method": "nominal", "model": "one", "data": "toy", "epochs": 1}
            | {"batch_size": 8, "lr": 0.01}
        },
        "season": {"soup": entry},
        "measure": {"models": ["soup"], "with": [{"measure": "clean", "data": "toy"}]},
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe, sort_keys=False))
    return path


def test_a_recipe_seasons_after_it_has_trained(
    pico_vit: Path, toy_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "EVERY_SECONDS", -1.0)
    path = written(tmp_path, pico_vit, toy_file)
    file = load_recipe(path)
    check(file)
    assert build_order(file) == ["two", "soup"]
    assert parents(file.recipe)["soup"] == ["one", "two"]
    done = invoke("run", path, "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "out" / "models" / "soup" / "stockpot.json").read_text())
    assert record["method"] == "grid"
    assert list(record["details"]["members"]) == ["one", "two"]
    assert len(record["details"]["selected_on"]) == 12
    assert list((tmp_path / "out" / "results").glob("soup--clean--toy--*.json"))
    assert "soup: trying soups: " in done.output


def test_a_recipe_says_how_batch_norm_and_classes_are_treated(
    pico_vit: Path, toy_file: Path, tmp_path: Path
) -> None:
    path = written(tmp_path, pico_vit, toy_file, bn="left", class_space="subset")
    file = load_recipe(path)
    check(file)
    order = order_of(file.recipe, "soup", tmp_path)
    assert (order.settings["bn"], order.settings["class_space"]) == ("left", "subset")


def test_the_command_prints_and_draws_what_withstood(
    pico_vit: Path, toy_file: Path, tmp_path: Path
) -> None:
    done = invoke(
        "season", "grid", f"a={pico_vit}", f"b={pico_vit}", "--data", toy_file, "--shots", 12,
        "-p", "threats=linf:1", "-p", "attack_steps=2", "-p", "low=0", "-p", "high=1",
        "-p", "step=0.5", "--plot", tmp_path / "plots", "-o", tmp_path / "soup",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "accuracy under linf 1" in done.output.replace("\n", " ")
    assert "BatchNorm statistics: mixed like weights" in done.output
    assert "accuracy under linf 1" in (tmp_path / "plots" / "line-a-b.svg").read_text()
    # Equal members tie everywhere: the middle of the line, not its first soup.
    record = json.loads((tmp_path / "soup" / "stockpot.json").read_text())["details"]
    assert record["members"] == {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"method": "gird"}, "season.soup.method"),
        ({"bn": "recompute"}, "season.soup.bn: recompute"),
        ({"bn": "extrapolated"}, "season.soup.bn"),
        ({"ties": "coin"}, "season.soup.ties: grid: ties"),
        ({"models": ["one", "three"]}, "season.soup.models.1"),
        ({"source": "nothing"}, "season.soup.source"),
        ({"shots": -1}, "season.soup.shots"),
    ],
)
def test_mistakes_are_named_by_their_line(
    change: dict[str, Any], words: str, pico_vit: Path, toy_file: Path, tmp_path: Path
) -> None:
    path = written(tmp_path, pico_vit, toy_file, **change)
    with pytest.raises(UserError, match=words):
        check(load_recipe(path))


def test_season_says_how_far_it_is_and_draws_what_it_tried(
    pico_vit: Path, toy_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "EVERY_SECONDS", -1.0)
    words = ["season", "grid", f"a={pico_vit}", f"b={pico_vit}", "--data", str(toy_file)]
    words += ["--shots", "10", "-o", str(tmp_path / "soup"), "--plot", str(tmp_path / "plots")]
    done = invoke(*words, "--device", "cpu")
    assert done.exit_code == 0, done.output
    names = sorted(path.name for path in (tmp_path / "plots").iterdir())
    assert names == ["composition.svg", "labels-needed.svg", "line-a-b.svg"]
    # Ten soups (-0.4 to 1.4) on ten images; the first look only starts the clock.
    for words_of in ("trying soups: 20 of 100 (20 %)", "scoring: "):
        assert words_of in done.output


def test_an_option_given_as_a_parameter_is_named(
    pico_vit: Path, toy_file: Path, tmp_path: Path
) -> None:
    told = invoke(
        "season", "grid", f"a={pico_vit}", f"b={pico_vit}", "--data", toy_file,
        "-p", "shots=2", "-o", tmp_path / "soup",
    )  # fmt: skip
    assert told.exit_code == 1
    assert "-p shots" in told.output
