"""The same question to a folder that holds its answer: nothing to do; another question: refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import stockpot
from pico import make_dataset
from run_recipes import pico_model
from stockpot.errors import BadCheckpointError, BadDataError
from stockpot.measure.cells import Cell, DataSpec, ModelSpec
from stockpot.measure.together.open_cell import open_cell


@pytest.fixture(scope="module")
def nets(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    place = tmp_path_factory.mktemp("nets")
    return [str(pico_model(place / name, seed)) for seed, name in enumerate("ab")]


def test_made_once_and_known_again(nets: list[str], tmp_path: Path) -> None:
    data, quick = make_dataset(), {"epochs": 1, "batch_size": 8}
    verbs = {
        "fuse": lambda **other: stockpot.fuse(
            "weighted", nets, out=tmp_path / "fuse", **{"weights": [1, 3]} | other
        ),
        "harden": lambda **other: stockpot.harden(
            "nominal", nets[0], data, out=tmp_path / "harden", **quick | other
        ),
        "season": lambda **other: stockpot.season(
            "uniform", nets, data, shots=8, out=tmp_path / "season", **other
        ),
    }
    changes = {"fuse": {"weights": [3, 1]}, "harden": {"lr": 0.5}, "season": {"seed": 1}}
    for name, make in verbs.items():
        make()
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / name).iterdir()}
        make()  # as after a kill that came when everything was in place
        assert {path: path.stat().st_mtime_ns for path in (tmp_path / name).iterdir()} == before
        (changed,) = changes[name]
        with pytest.raises(BadCheckpointError, match=rf"exists already\. .*{changed} "):
            make(**changes[name])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fuse", "harden", "season"]


def test_data_that_changed_under_a_run_is_not_answered_for(nets: list[str]) -> None:
    data = DataSpec("toy", make_dataset(), {})
    cell = Cell(
        model=ModelSpec("a", nets[0], {}), measure="clean", data=data, params={}, seed=0,
        store=None, device="cpu", batch_size=8,
    )  # fmt: skip
    asked = cell.key()
    with pytest.raises(BadDataError, match="has changed since the run began"):
        open_cell(cell, asked.model_copy(update={"data_fingerprint": "0" * 64}))
