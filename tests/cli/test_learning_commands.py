"""Fusion that learns, from the command line and from recipes: data, save, load, modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from commands import invoke
from stockpot.datasets.dataset import Dataset
from task_pools import ClipPool, make_clip_pool


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> ClipPool:
    return make_clip_pool(tmp_path_factory.mktemp("pool"))


@pytest.fixture(scope="module")
def files(pool: ClipPool, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("files")
    return {name: save(data, folder / f"{name}.npz") for name, data in pool.tasks.items()}


def save(data: Dataset, path: Path) -> Path:
    images = data.images.pixels.permute(0, 2, 3, 1).numpy()  # type: ignore[attr-defined]
    np.savez(path, images=images, labels=data.labels.numpy(), classes=np.array(data.classes))
    return path


def write(path: Path, pool: ClipPool, files: dict[str, Path], fuse: dict[str, Any]) -> Path:
    recipe = {
        "version": 1,
        "device": "cpu",
        "data": {name: {"dataset": str(file)} for name, file in files.items()},
        "models": {"base": {"load": str(pool.base)}}
        | {f"m-{name}": {"load": str(folder)} for name, folder in pool.members.items()},
        "fuse": fuse,
        "measure": {
            "models": list(fuse),
            "with": [{"measure": "clean", "data": name} for name in files],
        },
    }
    path.write_text(yaml.safe_dump(recipe))
    return path


def test_a_recipe_learns_saves_and_loads(
    pool: ClipPool, files: dict[str, Path], tmp_path: Path
) -> None:
    members = [f"m-{name}" for name in pool.members]
    common = {"models": members, "base": "base"}
    learned = str(tmp_path / "weights")
    fuse = {
        "adapted": {**common, "method": "adamerging", "steps": 2, "data": list(files),
                    "save": learned},
        "again": {**common, "method": "adamerging", "load": learned},
        "routed": {**common, "method": "wemoe", "steps": 1, "data": list(files)},
        "solved": {**common, "method": "regmean", "examples": 8, "data": list(files)},
    }  # fmt: skip
    path = write(tmp_path / "r.yaml", pool, files, fuse)
    result = invoke("run", path, "-o", tmp_path / "run")
    assert result.exit_code == 0, result.output
    first, second = (
        load_file(tmp_path / "run" / "models" / name / "model.safetensors")
        for name in ("adapted", "again")
    )
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert len(list((tmp_path / "run" / "results").glob("*.json"))) == 12


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"method": "adamerging"}, "give `data`"),
        ({"method": "adamerging", "data": ["ants"]}, "one dataset per model"),
        ({"method": "average", "data": ["ants"]}, "does not learn"),
        ({"method": "regmean", "data": ["ants", "numbers", "birds"]}, "no data named 'birds'"),
    ],
)
def test_a_recipe_is_checked_before_anything_runs(
    entry: dict[str, Any], words: str, pool: ClipPool, files: dict[str, Path], tmp_path: Path
) -> None:
    members = [f"m-{name}" for name in pool.members]
    path = write(
        tmp_path / "r.yaml", pool, files, {"x": {"models": members, "base": "base", **entry}}
    )
    result = invoke("validate", path)
    assert result.exit_code == 1
    assert words in result.output


def test_the_command_takes_a_task_per_member(
    pool: ClipPool, files: dict[str, Path], tmp_path: Path
) -> None:
    members = [f"{name}={folder}" for name, folder in pool.members.items()]
    tasks = [word for name, file in files.items() for word in ("--task", f"{name}={file}")]
    one = invoke("fuse", "adamerging", *members, "--base", pool.base, *tasks, "-p", "steps=2",
                 "--save", tmp_path / "w", "-o", tmp_path / "one")  # fmt: skip
    assert one.exit_code == 0, one.output
    two = invoke("fuse", "adamerging", *members, "--base", pool.base, "--load", tmp_path / "w",
                 "-o", tmp_path / "two")  # fmt: skip
    assert two.exit_code == 0, two.output
    first, second = (load_file(tmp_path / n / "model.safetensors") for n in ("one", "two"))
    assert all(torch.equal(first[key], second[key]) for key in first)
    module = invoke("fuse", "wemoe", *members, "--base", pool.base, *tasks, "-p", "steps=1",
                    "--data", files["ants"], "-o", tmp_path / "moe")  # fmt: skip
    assert module.exit_code == 0, module.output
    assert "accuracy" in module.output
    none = invoke("fuse", "adamerging", *members, "--base", pool.base, "-o", tmp_path / "x")
    assert none.exit_code == 1
    assert "--task" in none.output


def test_every_learning_method_is_listed_and_shown() -> None:
    from stockpot.fuse import fusers

    names = [name for name in fusers.names() if fusers.get(name).tags.learns]
    listing = invoke("list", "fusers").output
    for name in names:
        assert name in listing
        shown = invoke("show", name)
        assert shown.exit_code == 0
        entry = fusers.get(name)
        assert entry.paper
        for parameter in entry.parameters:
            assert parameter.doc, f"{name}: {parameter.name} has no text"
