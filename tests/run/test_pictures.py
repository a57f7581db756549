"""Pictures for a page: of the images that were measured, as the measure saw them, or none."""

from __future__ import annotations

import base64
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from hand_made import clean_cell
from stockpot.corrupt.apply import corrupt
from stockpot.datasets.load import load_dataset
from stockpot.results.schema import Score
from stockpot.run.pictures import pictures_of


def pixels_of(source: str) -> np.ndarray:
    return np.asarray(Image.open(BytesIO(base64.b64decode(source.partition(",")[2]))), np.float64)


def test_pictures_are_those_that_were_measured(tmp_path: Path) -> None:
    ramp = np.linspace(30, 220, 32).astype(np.uint8)
    images = np.tile(ramp, (8, 32, 1))[..., None].repeat(3, axis=3)
    images[:4] = images[:4, :, ::-1]  # the first four, of class 0, are mirrored
    file = tmp_path / "own.npz"
    np.savez(file, images=images, labels=np.repeat([0, 1], 4))
    data = load_dataset(str(file))
    right = np.array([0, 1, 0, 1, 1, 1, 1, 1], dtype=bool)
    cell = clean_cell("a", "own", right)
    facts = cell.data.model_copy(update={"fingerprint": data.fingerprint, "n": 8})
    by_class = [Score(metric="class_accuracy", value=value, n=4, condition={"class": name})
                for name, value in zip(data.classes, (0.5, 1.0), strict=True)]  # fmt: skip
    clean = cell.model_copy(update={"data": facts, "scores": [*cell.scores, *by_class]})
    fog = Score(metric="error", value=0.5, n=8, condition={"corruption": "fog", "severity": 3})
    key = cell.key.model_copy(update={"measure": "corruption"})
    foggy = cell.model_copy(update={"data": facts, "scores": [fog], "key": key})
    sources = {"own": {"name": str(file)}}

    found = pictures_of([clean, foggy], sources)
    sheet = found.corrupted["own"]
    assert sheet.places == {"": 0, "fog:3": 1}
    shown = pixels_of(sheet.source)
    one = data.images.take([4])
    made = corrupt(next(one.batches(1, None)), "fog", 3, seed=0)[0].permute(1, 2, 0).numpy()
    assert np.abs(shown[:, :32] - images[4]).mean() < 6  # WebP is not exact
    assert np.abs(shown[:, 32:64] - made).mean() < 6
    # Of the harder class, the two that were wrong come first.
    pictures = found.classes["own"][data.classes[0]]
    assert len(pictures) == 4
    assert np.abs(pixels_of(pictures[0]) - images[0]).mean() < 6

    # Other images of the same name are not shown, nor those that are nowhere.
    other = clean.model_copy(update={"data": facts.model_copy(update={"fingerprint": "other"})})
    assert not pictures_of([other], sources).classes
    assert not pictures_of([clean, foggy]).corrupted
