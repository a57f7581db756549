"""What is begun beside other work is done once, and for all who will want it."""

from __future__ import annotations

import shutil
import threading
import zlib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from stockpot.checkpoints.mapped_file import MappedFile
from stockpot.corrupt import rehearsal
from stockpot.datasets.dataset import Dataset
from stockpot.measure.cells import Cell, DataSpec, ModelSpec
from stockpot.measure.grids import MadeGrids
from stockpot.measure.measurement import Context
from stockpot.measure.run import measure
from stockpot.measure.together.ahead import corrupt_ahead
from stockpot.measure.together.jobs import Asked
from stockpot.measure.together.loading import Loading
from stockpot.measure.together.open_cell import OpenCell, open_cell
from stockpot.models.kept import holding_models
from stockpot.results.statistics import bootstrap_mean
from stockpot.types import ImageSize

CPU = torch.device("cpu")


@pytest.fixture
def three(pico_vit: Path, tmp_path: Path) -> list[Path]:
    """Folders of one network with different heads."""
    folders = []
    for turn in range(3):
        folders.append(Path(shutil.copytree(pico_vit, tmp_path / f"vit{turn}")))
        weights = load_file(pico_vit / "model.safetensors")
        weights["classifier.weight"] = weights["classifier.weight"].roll(turn, 0).contiguous()
        save_file(weights, folders[-1] / "model.safetensors", metadata={"format": "pt"})
    return folders


def cell(folder: Path, data: Dataset, name: str = "clean", **params: object) -> Cell:
    spec = DataSpec(data.name, data)
    return Cell(ModelSpec(folder.name, str(folder)), name, spec, params, 0, None, "cpu", 16)


def test_models_are_loaded_ahead_in_their_order_and_read_once(
    monkeypatch: pytest.MonkeyPatch, three: list[Path], toy_data: Dataset
) -> None:
    cells = [cell(folder, toy_data) for folder in three]
    asked = [Asked(turn, one, one.key()) for turn, one in enumerate(cells)]
    read: list[Path] = []

    def noted(self: MappedFile, places: object, fill=MappedFile.fill) -> None:  # type: ignore[no-untyped-def]
        read.append(self.path)
        fill(self, places)

    monkeypatch.setattr(MappedFile, "fill", noted)
    with holding_models(), Loading(asked, CPU, 2**30) as loading:
        loading.wait(0)
        assert not any(loading.is_there(turn) for turn in (1, 2))  # until somebody says so
        loading.begin()
        loading.wait(2)
        assert read == [folder / "model.safetensors" for folder in three]
        opened = [open_cell(one.cell, one.key) for one in asked]
    assert len(read) == 3
    for folder, found in zip(three, opened, strict=True):
        assert isinstance(found, OpenCell)
        own = found.model.network.state_dict()
        head = next(own[name] for name in own if name.endswith("classifier.weight"))
        assert torch.equal(head, load_file(folder / "model.safetensors")["classifier.weight"])


def test_statistics_of_all_models_are_done_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch, three: list[Path], toy_data: Dataset
) -> None:
    meeting = threading.Barrier(3, timeout=20)

    def met(*given: object, **options: object) -> object:
        meeting.wait()
        return bootstrap_mean(*given, **options)  # type: ignore[arg-type]

    expected = [measure(str(folder), "clean", data=toy_data)[0].scores for folder in three]
    monkeypatch.setattr("stockpot.measure.together.ends.usable_cores", lambda: 3)
    monkeypatch.setattr("stockpot.measure.clean.bootstrap_mean", met)
    together = measure([str(folder) for folder in three], "clean", data=toy_data)
    assert [result.scores for result in together] == expected


def test_labels_of_a_dataset_are_packed_once_for_all_its_cells(
    monkeypatch: pytest.MonkeyPatch, three: list[Path], toy_data: Dataset
) -> None:
    packed = []

    def counted(content: bytes, level: int, compress=zlib.compress) -> bytes:  # type: ignore[no-untyped-def]
        packed.append(content)
        return compress(content, level)

    monkeypatch.setattr("stockpot.results.packed._texts", {}, raising=False)
    monkeypatch.setattr("stockpot.results.packed.zlib.compress", counted)
    results = measure([str(folder) for folder in three], "clean", data=toy_data)
    assert len(packed) == 1
    names = [toy_data.classes[label] for label in toy_data.labels.tolist()]
    for result in results:
        assert result.image_labels is not None
        assert [result.label_names[place] for place in result.image_labels] == names


def test_a_grid_joins_the_rehearsal_that_was_begun_with_its_cell(
    monkeypatch: pytest.MonkeyPatch, pico_vit: Path, toy_data: Dataset
) -> None:
    monkeypatch.setattr(rehearsal, "_begun", {})
    params = {"corruptions": "contrast,zoom_blur", "severities": "1,5"}
    begun = corrupt_ahead(cell(pico_vit, toy_data, "corruption", **params), toy_data, CPU)
    cells = [(name, level) for name in ("contrast", "zoom_blur") for level in (1, 5)]
    how = ("all", "published", "auto", "procedural")
    grid = MadeGrids(toy_data, Context(), cells, *how)  # type: ignore[arg-type]
    assert grid.rehearsed(ImageSize(16, 16)) is begun
    assert begun is not None
    begun.join()
    assert not begun.is_alive()
    assert corrupt_ahead(cell(pico_vit, toy_data), toy_data, CPU) is None
