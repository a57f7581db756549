"""Cells: saved one by one, found again, and the same on every engine."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pico import CLASSES
from stockpot.corrupt.stored.files import write_pictures
from stockpot.corrupt.stored.record import claim, corruption_record
from stockpot.datasets.load import load_dataset
from stockpot.dynamic.references import all_references
from stockpot.errors import PartialResultsError, UserError
from stockpot.measure import measures
from stockpot.measure.by_content import by_content
from stockpot.measure.run import measure
from stockpot.results.paired.pairing import unlike
from stockpot.results.store import ResultStore
from stockpot.results.summary.comparable import question_of
from stockpot.types import ImageSize


def comparable(results) -> list:
    return [(r.key, r.scores, r.outcomes, r.convention) for r in results]


def test_engines_agree(pico_vit: Path, toy_file: Path, tmp_path: Path) -> None:
    models = {"a": pico_vit, "b": pico_vit}
    serial = measure(models, "clean", data=str(toy_file), out=tmp_path / "s", device="cpu")
    spread = measure(
        models, "clean", data=str(toy_file), out=tmp_path / "p", engine="processes", device="cpu"
    )
    assert comparable(serial) == comparable(spread)
    assert len(list(ResultStore(tmp_path / "p" / "results"))) == 2


def test_finished_cells_are_not_repeated(pico_vit, toy_file, tmp_path, monkeypatch) -> None:
    first = measure({"a": pico_vit}, "clean", data=str(toy_file), out=tmp_path)
    monkeypatch.setattr("stockpot.measure.cells.load_for", None)  # any load would fail
    again = measure({"a": pico_vit}, "clean", data=str(toy_file), out=tmp_path)
    assert again == first


def test_a_changed_question_is_asked_anew(pico_vit, toy_file, tmp_path) -> None:
    measure({"a": pico_vit}, "clean", data=str(toy_file), out=tmp_path)
    measure({"a": pico_vit}, {"clean": {"top": 2}}, data=str(toy_file), out=tmp_path)
    assert len(list(ResultStore(tmp_path / "results"))) == 2


def test_one_failing_cell_does_not_lose_the_others(pico_vit, toy_file, tmp_path) -> None:
    with pytest.raises(PartialResultsError, match=r"1 of 2 cells failed, 1 are saved.*no model"):
        measure({"good": pico_vit, "bad": "/nowhere/x"}, "clean", data=str(toy_file), out=tmp_path)
    assert [r.key.model for r in ResultStore(tmp_path / "results")] == ["good"]


def test_names_are_checked_before_any_work(pico_vit, toy_file) -> None:
    with pytest.raises(UserError, match="Did you mean clean"):
        measure(pico_vit, "claen", data=str(toy_file))
    with pytest.raises(UserError, match="Did you mean bins"):
        measure(pico_vit, {"clean": {"bin": 3}}, data=str(toy_file))
    for seed in (-1, 2**63):
        with pytest.raises(UserError, match="seed: expected a whole number from 0"):
            measure(pico_vit, "clean", data=str(toy_file), seed=seed)
    for members in ("zero_shot", ["zero_shot", "none"]):
        asked = {"oracle": "ensemble", "oracle_params": {"members": members}}
        with pytest.raises(UserError, match="members"):
            measure(pico_vit, {"dynamic": asked}, data=str(toy_file))
    results = measure([pico_vit, pico_vit], "clean", data=str(toy_file))
    assert [result.key.model for result in results] == ["pico-vit", "pico-vit-2"]


def test_objects_work_as_well_as_paths(perfect, toy_data) -> None:
    (result,) = measure({"perfect": perfect}, "clean", data=toy_data)
    assert result.score("accuracy").value == 1.0
    assert result.data.fingerprint == toy_data.fingerprint
    assert result.model.preprocessing.startswith("resize 16x16")


def always(path: Path, answer: int) -> str:
    """A factory of a model that answers every picture alike."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "import torch\n"
        "class Always(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        f"        self.scores = torch.nn.Parameter(torch.eye(4)[{answer}])\n"
        "    def forward(self, pixels):\n"
        "        return self.scores + pixels.mean((1, 2, 3))[:, None]\n"
    )
    return f"{path}:Always"


def test_a_baseline_that_changed_in_its_place_is_another_question(
    pico_vit, toy_data, tmp_path
) -> None:
    data = toy_data.take(range(len(toy_data) - 3))  # so that the classes are not equally many
    errors = [1 - (data.labels == answer).double().mean().item() for answer in (0, 3)]
    assert errors[0] != errors[1]
    for answer, error in zip((0, 3), errors, strict=True):
        asked = {"corruptions": "contrast", "severities": "5"}
        asked["baseline"] = always(tmp_path / "model.py", answer)
        (found,) = measure({"a": pico_vit}, {"corruption": asked}, data=data, out=tmp_path / "runs")
        own = found.score("error").value
        assert found.score("mce").value == pytest.approx(own / error)


def test_sets_outside_that_changed_in_their_place_are_another_question(
    perfect, toy_data, toy_file, tmp_path
) -> None:
    asked = {"shift": {"outside": {"other": str(toy_file)}}}
    for right in (1.0, 0.0):
        (found,) = measure({"m": perfect}, asked, data=toy_data, out=tmp_path / "runs")
        assert found.score("outside_accuracy").value == right
        held = dict(np.load(toy_file))
        np.savez(toy_file, **held | {"labels": (held["labels"] + 1) % 4})


def test_what_a_parameter_names_counts_by_its_content(tmp_path) -> None:
    def question(folder: Path) -> dict:
        members = [
            {"oracle": "classifier", "model": f"{folder / 'model.py'}:Always"},
            {"oracle": "human", "path": str(folder / "review.csv")},
        ]
        params = {"oracle": "ensemble", "oracle_params": {"members": members}}
        return by_content(params, all_references(measures.get("dynamic"), params))

    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        always(folder / "model.py", 1)
        (folder / "review.csv").write_text("file,sha256,label,answer\n")
    first = question(here)
    assert question(there) == first
    always(there / "model.py", 2)
    second = question(there)
    (there / "review.csv").write_text("file,sha256,label,answer\na.png,0,cat,cat\n")
    third = question(there)
    assert len({str(each) for each in (first, second, third)}) == 3


def test_data_that_changed_in_its_place_is_read_again(perfect, toy_file) -> None:
    for right in (1.0, 0.0):
        (found,) = measure({"m": perfect}, "clean", data=str(toy_file))
        assert found.score("accuracy").value == right
        held = dict(np.load(toy_file))
        np.savez(toy_file, **held | {"labels": (held["labels"] + 1) % 4})


def test_a_picture_that_came_into_a_folder_is_measured(perfect, tmp_path) -> None:
    for count in (1, 2):
        for name in CLASSES:
            place = tmp_path / name
            place.mkdir(exist_ok=True)
            Image.new("RGB", (16, 16)).save(place / f"{count}.png")
        (found,) = measure({"m": perfect}, "clean", data=str(tmp_path))
        assert found.data.n == count * len(CLASSES)


def test_corrupted_pictures_that_were_made_anew_are_measured_anew(perfect, tmp_path) -> None:
    clean, corrupted = tmp_path / "clean", tmp_path / "corrupted"
    for name, level in zip(CLASSES, (20, 90, 160, 230), strict=True):
        (clean / name).mkdir(parents=True)
        Image.new("RGB", (16, 16), (level,) * 3).save(clean / name / "one.png")
    data, one = load_dataset(str(clean)), {"corruptions": "gaussian_noise", "severities": 5}
    asked = {"corruption": {**one, "folder": str(corrupted)}}
    for seed in (0, 0, 9):
        made = {"format": "png", "profile": "cifar", "size": ImageSize(16, 16)}
        record = corruption_record(data, layout="pictures", seed=seed, device="cpu",
                                   overlays="procedural", codec="auto", **made)  # fmt: skip
        if seed:
            shutil.rmtree(corrupted)
        claim(corrupted, record, data, ("gaussian_noise",))
        write_pictures(data, corrupted, "gaussian_noise", 5, seed=seed, side=16, format="png")
        measure({"m": perfect}, asked, data=data, out=tmp_path / "run")
    found = list(ResultStore(tmp_path / "run" / "results"))
    keys = [result.key for result in found]
    assert len(keys) == 2  # the second time nothing had changed
    assert unlike(*found) == "other pictures (folder)"
    assert len({question_of(result) for result in found}) == 2
    assert all(key.params["folder"] == str(corrupted) for key in keys)
    assert len({key.contents["folder"] for key in keys}) == 2
