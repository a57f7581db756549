"""A cell that is divided by its images: the parts sum to the whole, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from measure.test_non_finite import Silent
from measure.test_together import encoded_data
from pico import make_classifier, make_dataset
from stockpot.errors import BadParameterError
from stockpot.measure import grids, measures
from stockpot.measure.parts import Part
from stockpot.measure.run import measure
from stockpot.measure.together import jobs, sent
from stockpot.models.classifier import Classifier
from stockpot.results.schema import CellResult

SIZE = 4
QUICK: dict[str, dict[str, Any]] = {
    "clean": {},
    "corruption": {"corruptions": ("gaussian_noise", "glass_blur"), "severities": (1, 5)}
    | {"baseline": "none"},
    "adversarial": {"steps": 2, "norms": "linf,l2"},
    "calibration": {"held_out": "content"},
    "selective": {},
    "factors": {"by": "family"},
    "surface": {"by": "family"},
    "shape_bias": {},
    "certified": {"n0": 2, "n": 8},
    "dynamic": {"generator": "colour", "oracle": "none", "budget": 2, "pictures": 2},
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4)
        )
        self.layers(torch.zeros(2, 3, 16, 16))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.layers(pixels)


def told(results: list[CellResult]) -> list[Mapping[str, Any]]:
    """All of the results but when, where and at what cost."""
    return [one.model_dump(exclude={"cost", "provenance"}) for one in results]


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grids that a process remembers would spare the parts their work."""
    monkeypatch.setattr(
        grids, "_KEPT", type("Nothing", (dict,), {"__setitem__": lambda *_: None})()
    )


def test_every_measure_that_splits_is_tried() -> None:
    assert set(QUICK) == {name for name in measures.names() if measures.get(name).tags.splits}


@pytest.mark.parametrize("name", QUICK)
def test_parts_sum_to_the_whole(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_dataset(14)
    models = {"net": make_classifier(Net()), "broken": make_classifier(Silent(torch.nan, False))}
    asked: dict[str, Any] = {"measures": {name: QUICK[name]}, "data": data, "batch_size": SIZE}
    whole = told(measure(models, out=tmp_path / "whole", **asked))
    assert any(flag["name"] == "non_finite" for flag in whole[1]["flags"])
    parts: list[Part | None] = []
    plain = sent.run_group

    def seen(asked: list[jobs.Asked], *rest: Any) -> Any:
        parts.extend({one.cell.part for one in asked})
        return plain(asked, *rest)

    monkeypatch.setattr(sent, "run_group", seen)
    assert told(measure(models, out=tmp_path / "parts", shards=3, **asked)) == whole
    assert parts == [Part(0, 3), Part(1, 3), Part(2, 3), None]
    assert not list((tmp_path / "parts").rglob("*.safetensors"))
    names = [
        sorted(p.name for p in (tmp_path / f / "results").iterdir()) for f in ("whole", "parts")
    ]
    assert names[0] == names[1]


def test_pictures_of_many_sizes_and_a_measured_baseline(tmp_path: Path) -> None:
    models = {"net": make_classifier(Net()), "other": make_classifier(Silent(torch.inf, False))}
    asked: dict[str, Any] = {"data": encoded_data(13), "batch_size": 4, "precision": "fp32"}
    asked["measures"] = {"clean": {}, "corruption": {**QUICK["corruption"], "severities": (3,)}}
    whole = told(measure(models, out=tmp_path / "whole", **asked))
    assert told(measure(models, out=tmp_path / "parts", shards=2, **asked)) == whole


def only(patch: pytest.MonkeyPatch, *, parts: bool) -> None:
    """Go through parts alone, or through whole cells alone."""
    plain = sent.run_group

    def some(asked: list[jobs.Asked], *rest: Any) -> list[Any]:
        return plain(asked, *rest) if (asked[0].cell.part is not None) == parts else []

    patch.setattr(sent, "run_group", some)


def kept(model: Classifier, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The pieces of a cell whose last run was kept from happening."""
    data = make_dataset(14)
    with monkeypatch.context() as patch:
        only(patch, parts=True)
        with pytest.raises(KeyError):
            measure(model, "clean", data=data, out=folder, batch_size=SIZE, shards=2)
    return sorted(folder.rglob("*.safetensors"))


def test_the_whole_is_read_from_the_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_classifier(Net())
    first, *_ = pieces = kept(model, tmp_path, monkeypatch)
    assert len(pieces) == 4  # batches of 14 images
    asked: dict[str, Any] = {"data": make_dataset(14), "batch_size": SIZE, "shards": 2}
    answers = load_file(first)
    about = first.read_bytes()
    with monkeypatch.context() as patch:  # what is there needs no model
        only(patch, parts=False)
        patch.setattr(Net, "forward", lambda *_: 1 / 0)
        (result,) = measure(model, "clean", out=tmp_path, **asked)
    assert (
        result.outcome("correct")[:4].tolist()
        == (answers["logits"].argmax(1) == make_dataset(14).labels[:4]).tolist()
    )
    # A piece that is broken is found out, and the images are gone through again.
    kept(model, tmp_path / "again", monkeypatch)
    (broken,) = (tmp_path / "again").rglob("00000000-*.safetensors")
    broken.write_bytes(about[:-7])
    with monkeypatch.context() as patch:
        only(patch, parts=False)
        (again,) = measure(model, "clean", out=tmp_path / "again", **asked)
    assert told([again]) == told([result])
    save_file(answers, tmp_path / "unused")  # the pieces are plain safetensors


def test_parts_are_whole_batches() -> None:
    for count, size, of in [(22, 6, 3), (5, 6, 3), (100, 7, 4), (0, 3, 2)]:
        rows = [row for number in range(of) for row in Part(number, of).rows(count, size)]
        assert rows == list(range(count))
        assert all(Part(number, of).rows(count, size).start % size == 0 for number in range(of))


def test_parts_need_a_place_to_meet() -> None:
    with pytest.raises(BadParameterError, match="give out=FOLDER"):
        measure(make_classifier(Net()), "clean", data=make_dataset(4), shards=2)
